"""A Linux guest in QEMU: booted in seconds without KVM, driven over a serial port, ended with the test.

Works by hand too, with the environment that environment.sh built:

    python tests/hosts/guest.py --vfio-user /run/flashmob/ssd0 'nvme list'
    python tests/hosts/guest.py --network 'modprobe nvme-tcp; nvme discover -t tcp -a 10.0.2.2 -s 4420'
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

BOOT_LIMIT_SECONDS = 240.0


class GuestError(Exception):
    """The guest did not do what it was told; the message holds what it said last."""


@dataclass(frozen=True)
class Outcome:
    """What a script in the guest printed, and the exit status of its shell."""

    status: int
    output: str
    seconds: float

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


@dataclass
class Machine:
    """The virtual hardware: how much of it, and what is attached."""

    memory_mib: int = 768
    processors: int = 2
    vfio_user: list[Path] = field(default_factory=list)
    """Sockets of vfio-user servers; each becomes a PCIe device behind a root port of its own, named ssd0, ssd1..."""
    network: bool = False
    """A card on QEMU's user network; the machine outside is 10.0.2.2."""
    root_ports: bool = True
    """Without them devices sit on the root complex, where they cannot be unplugged."""
    initramfs: Path | None = None
    """The guest's system, where it is not the environment's."""
    extra: list[str] = field(default_factory=list)
    """More of QEMU's own arguments."""

    def arguments(self) -> list[str]:
        memory = f"memory-backend-memfd,id=mem,size={self.memory_mib}M,share=on"
        found = ["-M", "q35,memory-backend=mem", "-m", f"{self.memory_mib}M", "-object", memory]
        # qemu64 has no vector extensions to be emulated slowly; the CRC instruction is worth having.
        found += ["-accel", "tcg,thread=multi", "-cpu", "qemu64,+ssse3,+sse4.1,+sse4.2", "-smp", str(self.processors)]
        found += ["-nodefaults", "-display", "none", "-no-reboot"]
        for index in range(max(1, len(self.vfio_user)) if self.root_ports else 0):
            found += ["-device", f"pcie-root-port,id=port{index},chassis={index + 1},slot={index + 1}"]
        for index, path in enumerate(self.vfio_user):
            found += ["-device", json.dumps(vfio_user_device(index, path, self.place(index)))]
        if self.network:
            found += ["-netdev", "user,id=net0", "-device", "virtio-net-pci,netdev=net0,romfile="]
        return found + self.extra

    def place(self, index: int) -> dict[str, str]:
        """Where the device of this number is plugged in."""
        # U-Boot takes what is in slot 1 of the root complex for a part of an old chipset, whatever it is.
        return {"bus": f"port{index}"} if self.root_ports else {"bus": "pcie.0", "addr": hex(index + 4)}


def vfio_user_device(index: int, path: Path, place: dict[str, str]) -> dict[str, Any]:
    """The device as QEMU's command line and its monitor take it."""
    where = {"type": "unix", "path": str(path)}
    return {"driver": "vfio-user-pci", "id": f"ssd{index}", "socket": where, **place}


class Qemu:
    """A QEMU process with its console in a file and a monitor socket. A context manager: nothing of it stays behind."""

    def __init__(self, environment: Path, arguments: list[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="flashmob-guest-"))
        self.console_path = self.folder / "console"
        self._messages = self.folder / "messages"
        self.control_path = self.folder / "control"
        command = [str(environment / "bin/qemu"), *arguments]
        # What is typed goes through a FIFO. Opened for both directions it waits for nobody.
        keyboard = self.folder / "keyboard"
        os.mkfifo(keyboard)
        self._keyboard = os.open(keyboard, os.O_RDWR)
        command += ["-chardev", f"file,id=console,path={self.console_path},input-path={keyboard}"]
        command += ["-serial", "chardev:console"]
        command += ["-chardev", f"socket,id=control,path={self.control_path},server=on,wait=off"]
        command += ["-serial", "chardev:control"]
        command += ["-qmp", f"unix:{self.folder / 'qmp'},server=on,wait=off"]
        with self._messages.open("wb") as messages:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages)
        self._qmp: socket.socket | None = None
        self._qmp_rest = b""

    def __enter__(self) -> Qemu:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the machine as if its power was cut."""
        if self._qmp is not None:
            self._qmp.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self._keyboard >= 0:
            os.close(self._keyboard)
            self._keyboard = -1
        shutil.rmtree(self.folder, ignore_errors=True)

    def console(self) -> str:
        """All that firmware and kernel have printed so far."""
        return self.console_path.read_text(errors="replace") if self.console_path.exists() else ""

    def messages(self) -> str:
        """What QEMU itself complained about."""
        return self._messages.read_text(errors="replace")

    def alive(self) -> bool:
        return self.process.poll() is None

    def connect(self, path: Path, limit: float) -> socket.socket:
        """A connection to one of this machine's sockets, once it is there."""
        deadline = time.monotonic() + limit
        while True:
            made = socket.socket(socket.AF_UNIX)
            try:
                made.connect(str(path))
                return made
            except OSError:
                made.close()
                if not self.alive() or time.monotonic() > deadline:
                    raise GuestError(f"QEMU did not start: {self.messages() or 'no message'}") from None
                time.sleep(0.02)

    def wait_for_console(self, text: str, limit: float) -> str:
        """Waits until the console shows the text, and returns all of it."""
        deadline = time.monotonic() + limit
        while text not in (shown := self.console()):
            if not self.alive() or time.monotonic() > deadline:
                raise GuestError(f"the console did not show {text!r} in {limit:.0f} s\n{self.report()}")
            time.sleep(0.02)
        return shown

    def type(self, text: str) -> None:
        """Types on the console, as a person would."""
        os.write(self._keyboard, text.encode())

    def monitor(self, command: str, **arguments: Any) -> Any:
        """Sends a command to QEMU's monitor, and returns its answer."""
        if self._qmp is None:
            self._qmp = self.connect(self.folder / "qmp", 10)
            self._qmp.settimeout(20)
            self._next_message()
            self._ask("qmp_capabilities", {})
        return self._ask(command, arguments)

    def _ask(self, command: str, arguments: dict[str, Any]) -> Any:
        assert self._qmp is not None
        self._qmp.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        while "event" in (answer := self._next_message()):
            pass
        if "error" in answer:
            raise GuestError(f"QEMU refused {command}: {answer['error']['desc']}")
        return answer["return"]

    def _next_message(self) -> dict[str, Any]:
        assert self._qmp is not None
        while b"\n" not in self._qmp_rest:
            received = self._qmp.recv(65536)
            if not received:
                raise GuestError(f"QEMU ended\n{self.report()}")
            self._qmp_rest += received
        line, self._qmp_rest = self._qmp_rest.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def report(self) -> str:
        """The end of what QEMU and the console said; without the boot, if that went well."""
        console = self.console().rpartition("guest: ready\n")[2]
        return f"--- QEMU\n{self.messages()[-2000:]}\n--- console\n{console[-4000:]}"


class Guest(Qemu):
    """Linux with the stock NVMe drivers, and a shell that takes scripts."""

    def __init__(self, environment: Path, machine: Machine, append: str = "") -> None:
        arguments = machine.arguments()
        initramfs = machine.initramfs or environment / "initramfs.cpio"
        arguments += ["-kernel", str(environment / "vmlinuz"), "-initrd", str(initramfs)]
        # A panic ends QEMU, so that a test fails at once. A command that is not answered is given up after 8 s, not 30.
        line = (
            "console=ttyS0 panic=-1 oops=panic mitigations=off audit=0 nvme_core.io_timeout=8 nvme_core.admin_timeout=8"
        )
        arguments += ["-append", f"{line} {append}".strip()]
        super().__init__(environment, arguments)
        self._numbers = itertools.count(1)
        self.prelude = ""
        self._received = b""
        try:
            self._control = self.connect(self.control_path, 10)
            self._read_until(b"@@READY\n", BOOT_LIMIT_SECONDS, "booting")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Guest:
        return self

    def close(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            self._control.close()
        super().close()

    def run(self, script: str, limit: float = 180, check: bool = True) -> Outcome:
        """Runs a shell script in the guest, which ends at the first failing command; with `check` that is an error."""
        number = next(self._numbers)
        started = time.monotonic()
        mark = f"@@END-{number}"
        # The mark in the command is in two pieces, so that only its output holds it whole.
        body = (
            f"cat >/run/script-{number} <<'{mark}'\n{self.prelude}\n{script}\n{mark}\n"
            f"timeout -s KILL {limit:.0f} sh -e /run/script-{number} </dev/null 2>&1\n"
            f'status=$?; echo; echo "@@""STATUS-{number} $status"\n'
        )
        self._control.sendall(body.encode())
        output = self._read_until(f"@@STATUS-{number} ".encode(), limit + 20, script)
        status = int(self._read_until(b"\n", 10, script))
        outcome = Outcome(status, output.decode(errors="replace").removesuffix("\n"), time.monotonic() - started)
        if check and status != 0:
            why = f"took longer than {limit:.0f} s" if status == 128 + signal.SIGKILL else f"exit status {status}"
            raise GuestError(f"{why}:\n{script}\n--- output\n{outcome.output[-6000:]}\n{self.report()}")
        return outcome

    def start(self, name: str, script: str) -> None:
        """Starts a script in the guest's background; `finish` waits for it."""
        self.run(
            f"rm -f /run/{name}.status; cat >/run/{name}.sh <<'@@BACKGROUND'\n{self.prelude}\n{script}\n@@BACKGROUND\n"
            f"(sh -e /run/{name}.sh >/run/{name}.out 2>&1; echo $? >/run/{name}.status) </dev/null >/dev/null 2>&1 &"
        )

    def finish(self, name: str, limit: float = 180, check: bool = True) -> Outcome:
        """Waits for a script in the background."""
        wait = f"cd /run; while [ ! -s {name}.status ]; do sleep 0.1; done; cat {name}.out; exit $(cat {name}.status)"
        return self.run(wait, limit, check)

    def _read_until(self, mark: bytes, limit: float, doing: str) -> bytes:
        deadline = time.monotonic() + limit
        while mark not in self._received:
            readable, _, _ = select.select([self._control], [], [], max(0.0, deadline - time.monotonic()))
            received = self._control.recv(65536) if readable else b""
            if not received:
                what = "QEMU ended" if readable else f"no answer in {limit:.0f} s"
                said = self._received[-3000:].decode(errors="replace")
                raise GuestError(f"{what}; the guest was doing:\n{doing}\n--- output\n{said}\n{self.report()}")
            self._received += received
        before, self._received = self._received.split(mark, 1)
        return before


def find_environment() -> Path:
    """The folder that environment.sh made, named by FLASHMOB_HOSTS or at its usual place."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("FLASHMOB_HOSTS") or Path(cache) / "flashmob-hosts")


def main() -> int:
    """Boots a guest for one command and prints what it says."""
    parser = argparse.ArgumentParser(description="Boot a Linux guest, run a shell command in it, print what it says.")
    parser.add_argument("--vfio-user", type=Path, action="append", default=[], metavar="SOCKET")
    parser.add_argument("--network", action="store_true", help="a network card; this machine is 10.0.2.2")
    parser.add_argument("--limit", type=float, default=120, help="seconds for the command")
    parser.add_argument("--console", action="store_true", help="print the kernel's log too")
    parser.add_argument("--qemu", action="append", default=[], metavar="ARGUMENT", help="one more argument for QEMU")
    parser.add_argument("command")
    given = parser.parse_args()
    machine = Machine(vfio_user=given.vfio_user, network=given.network, extra=given.qemu)
    try:
        with Guest(find_environment(), machine) as guest:
            outcome = guest.run(given.command, given.limit, check=False)
            print(outcome.output)
            if given.console:
                print(guest.console(), file=sys.stderr)
            return outcome.status
    except GuestError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
