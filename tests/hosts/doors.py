"""The ways in which a guest reaches an SSD. The same checks run over each of them.

Two doors are ours. Two more are QEMU's emulated NVMe drive and Linux's own NVMe/TCP target inside the guest: with
`--doors emulated,nvmet` the checks themselves are tried against SSDs that are known to work.
"""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from guest import Guest, Machine
from serve import ServedSsd

SIZE = "1GiB"


class Door(ABC):
    """One SSD and the way to it. `ours` tells flashmob from the stand-ins; `pcie` says that it is a PCIe device."""

    name: str
    ours = False
    pcie = False
    cannot: frozenset[str] = frozenset()
    """Commands that this kind of SSD does not have; only a stand-in may lack any."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = folder / "image"
        """The SSD's content, where it lies in a file."""

    @abstractmethod
    def machine(self, root_ports: bool = True) -> Machine:
        """The hardware of a guest that uses this door."""

    def open(self) -> None:  # noqa: B027, most doors need nothing
        """Starts what is needed outside the guest."""

    def close(self) -> None:  # noqa: B027
        """Stops it."""

    def attach(self, guest: Guest) -> None:
        """Makes the namespace appear in a guest that has just booted."""
        self.settle(guest)

    def settle(self, guest: Guest) -> None:
        """Waits until the controller is live and the namespace is there, and tells the guest's scripts their names."""
        guest.run(
            """
            for try in $(seq 300); do
              for C in /sys/class/nvme/nvme*; do
                [ "$(cat $C/state 2>/dev/null)" = live ] || continue
                N=$(ls -d /dev/nvme*n1 2>/dev/null | head -n 1)
                [ -b "$N" ] && [ "$(blockdev --getsize64 $N)" -gt 0 ] || continue
                { echo "C=/dev/${C##*/}"; echo "N=$N"; } >/run/names
                exit 0
              done
              sleep 0.1
            done
            echo "no live controller with a namespace:"; grep . /sys/class/nvme/*/state; ls /dev/nvme*; exit 1
            """,
            40,
        )
        guest.prelude = ". /run/names"

    def health(self) -> str:
        """Empty when what is outside the guest is well, else what is wrong."""
        return ""


class Ours(Door):
    """An SSD that flashmob serves."""

    ours = True
    ssd: ServedSsd

    def open(self) -> None:
        if not self.ssd.alive():
            self.ssd.start()

    def close(self) -> None:
        self.ssd.close()

    def health(self) -> str:
        return "" if self.ssd.alive() else f"flashmob serve ended\n{self.ssd.log()}"


class Emulated(Door):
    """QEMU's own NVMe drive."""

    name = "emulated"
    pcie = True

    def machine(self, root_ports: bool = True) -> Machine:
        if not self.image.exists():
            with self.image.open("wb") as file:
                file.truncate(1 << 30)
        drive = f"file={self.image},if=none,id=drive,format=raw,discard=unmap,detect-zeroes=unmap"
        machine = Machine(root_ports=root_ports)
        device = {"driver": "nvme", "drive": "drive", "serial": "emulated", "id": "ssd0", **machine.place(0)}
        machine.extra = ["-drive", drive, "-device", json.dumps(device)]
        return machine


class Nvmet(Door):
    """The kernel's NVMe/TCP target, in the guest that uses it."""

    name = "nvmet"
    cannot = frozenset({"format", "compare", "error-log", "temperature", "fw-log"})
    nqn = "nqn.2014-08.org.nvmexpress:tests"

    def machine(self, root_ports: bool = True) -> Machine:
        return Machine(memory_mib=2048, network=True)

    def attach(self, guest: Guest) -> None:
        guest.run(
            f"""
            modprobe -a nvme-tcp nvmet-tcp loop; mount -t configfs none /sys/kernel/config
            truncate -s 1G /tmp/namespace
            losetup /dev/loop0 /tmp/namespace
            cd /sys/kernel/config/nvmet
            mkdir -p subsystems/{self.nqn}/namespaces/1 ports/1
            echo 1 >subsystems/{self.nqn}/attr_allow_any_host
            echo /dev/loop0 >subsystems/{self.nqn}/namespaces/1/device_path
            echo 1 >subsystems/{self.nqn}/namespaces/1/enable
            echo tcp >ports/1/addr_trtype; echo ipv4 >ports/1/addr_adrfam
            echo 127.0.0.1 >ports/1/addr_traddr; echo 4420 >ports/1/addr_trsvcid
            ln -s /sys/kernel/config/nvmet/subsystems/{self.nqn} ports/1/subsystems/
            """
        )
        guest.run(connect_command("127.0.0.1", 4420, self.nqn))
        self.settle(guest)


class VfioUser(Ours):
    """flashmob serve --vfio-user, as a PCIe device."""

    name = "vfio-user"
    pcie = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # A file, so that what was written is still there after a restart.
        self.ssd = ServedSsd(folder, vfio_user=True, media=f"file:{self.image}", size=SIZE)

    def machine(self, root_ports: bool = True) -> Machine:
        return Machine(vfio_user=[self.ssd.socket_path], root_ports=root_ports)


class NvmeTcp(Ours):
    """flashmob serve --tcp, over QEMU's user network."""

    name = "nvme-tcp"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ssd = ServedSsd(folder, name="net0", tcp=True, media=f"file:{self.image}", size=SIZE)

    def machine(self, root_ports: bool = True) -> Machine:
        return Machine(network=True)

    def attach(self, guest: Guest) -> None:
        guest.run("modprobe nvme-tcp")
        entries = discover(guest, self.ssd.port)
        assert self.ssd.nqn in [entry["subnqn"] for entry in entries]
        guest.run(connect_command("10.0.2.2", self.ssd.port, self.ssd.nqn))
        self.settle(guest)


def discover(guest: Guest, port: int, address: str = "10.0.2.2") -> list[dict[str, Any]]:
    """What the discovery controller lists."""
    answer = guest.run(f"nvme discover -t tcp -a {address} -s {port} -o json", 30)
    records: list[dict[str, Any]] = json.loads(answer.output)["records"]
    return records


def connect_command(address: str, port: int, nqn: str, *more: str) -> str:
    """The command with which a guest connects; short delays, because the tests cut connections."""
    delays = "--reconnect-delay=1 --ctrl-loss-tmo=60 --keep-alive-tmo=5"
    return f"nvme connect -t tcp -a {address} -s {port} -n {nqn} {delays} {' '.join(more)}".strip()


DOORS: dict[str, type[Door]] = {door.name: door for door in (VfioUser, NvmeTcp, Emulated, Nvmet)}
OURS = [name for name, door in DOORS.items() if door.ours]


def make_door(name: str) -> Door:
    """A door of the kind that is asked for, with a folder of its own."""
    # In /tmp, because the path of a Unix socket has at most 107 characters.
    return DOORS[name](Path(tempfile.mkdtemp(prefix=f"flashmob-{name}-", dir="/tmp")))
