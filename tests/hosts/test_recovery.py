"""Resets, unbinding, and an SSD that stops and starts, all under load: nothing hangs and no data is lost."""

from __future__ import annotations

import time

import pytest
from conftest import Bench
from doors import Door, Nvmet, NvmeTcp, VfioUser, connect_command
from guest import Guest

LOAD = (
    "fio --name=load --filename=$N --allow_file_create=0 --direct=1 --ioengine=io_uring --iodepth=32 --rw=randrw "
    "--bs=4k --offset=256m --size=48m --time_based --runtime={seconds} --output-format=terse "
    "--verify=crc32c --verify_fatal=1 --verify_backlog=256"
)
KEPT = "dd if=/dev/urandom of=/run/kept bs=64k count=32; dd if=/run/kept of=$N bs=64k seek=16 oflag=direct conv=fsync"
STILL_THERE = "dd if=$N of=/run/found bs=64k skip=16 count=32 iflag=direct; cmp /run/kept /run/found"
WORKS = f"{KEPT}; {STILL_THERE}"


def start_load(guest: Guest, seconds: int) -> None:
    """Returns when the load has written its first MiB; before that it might be hit while it is still starting."""
    guest.start("load", LOAD.format(seconds=seconds))
    guest.run(
        """
        for try in $(seq 200); do
          written=$(for p in $(pidof fio); do
            sed -n 's/^write_bytes: //p' /proc/$p/io 2>/dev/null; done | sort -n | tail -n 1)
          [ "${written:-0}" -lt 1048576 ] || exit 0
          sleep 0.1
        done
        echo "the load does not start"; cat /run/load.out; exit 1
        """
    )


def stop_load(guest: Guest) -> None:
    """Ends a load whose device is gone. fio would try for ever: reads of a dead disk are short and not refused."""
    guest.run("for p in $(pidof fio); do kill -9 $p || :; done; while pidof fio; do sleep 0.1; done", 20)


def pci_address(guest: Guest) -> str:
    return guest.run("basename $(readlink -f /sys/class/nvme/${C##*/}/device)").output.strip()


def test_reset_under_load(guest: Guest) -> None:
    """`nvme reset` five times while fio writes, reads and verifies: the kernel sends again what was cut off."""
    guest.run(KEPT)
    start_load(guest, 6)
    guest.run("for turn in 1 2 3 4 5; do sleep 0.7; nvme reset $C; done")
    guest.finish("load", 40)
    guest.run(STILL_THERE)
    assert guest.run("cat /sys/class/nvme/${C##*/}/state").output.strip() == "live"


def test_rescan_and_logs_under_load(guest: Guest) -> None:
    """Admin commands are answered while the I/O queues are full."""
    start_load(guest, 3)
    guest.run("for turn in $(seq 10); do nvme ns-rescan $C; nvme smart-log $C; nvme id-ctrl $C; done >/dev/null")
    guest.finish("load", 40)


@pytest.mark.doors("vfio-user", "emulated")
def test_unbind_and_bind(guest: Guest, door: Door) -> None:
    address = pci_address(guest)
    guest.run(KEPT)
    for _ in range(3):
        guest.run(
            f"""
            echo {address} >/sys/bus/pci/drivers/nvme/unbind
            [ ! -e $N ]
            echo {address} >/sys/bus/pci/drivers/nvme/bind
            """
        )
        door.settle(guest)
    guest.run(STILL_THERE)


@pytest.mark.doors("vfio-user", "emulated")
def test_unbind_under_load(guest: Guest, door: Door) -> None:
    """The driver lets go of the device in the middle of I/O, and takes it again."""
    address = pci_address(guest)
    guest.run(KEPT)
    start_load(guest, 20)
    guest.run(f"echo {address} >/sys/bus/pci/drivers/nvme/unbind; [ ! -e $N ]")
    stop_load(guest)
    guest.run(f"echo {address} >/sys/bus/pci/drivers/nvme/bind")
    door.settle(guest)
    guest.run(f"{STILL_THERE}; {WORKS}")


@pytest.mark.doors("vfio-user", "emulated")
def test_pci_function_reset(guest: Guest) -> None:
    """A reset of the PCIe function, with the driver told before and after."""
    address = pci_address(guest)
    guest.run(KEPT)
    methods = guest.run(f"cat /sys/bus/pci/devices/{address}/reset_method", check=False).output
    assert methods.strip(), "the device offers a way to be reset"
    guest.run(f"echo 1 >/sys/bus/pci/devices/{address}/reset; sleep 1")
    guest.run(STILL_THERE)


@pytest.mark.doors("nvme-tcp", "nvmet")
def test_disconnect_and_connect(guest: Guest, door: Door) -> None:
    guest.run(KEPT)
    for _ in range(3):
        guest.run("nvme disconnect -d ${C##*/}; [ ! -e $N ]")
        guest.run(reconnect(door))
        door.settle(guest)
    guest.run(STILL_THERE)


@pytest.mark.doors("nvme-tcp")
def test_disconnect_under_load(guest: Guest, door: Door) -> None:
    guest.run(KEPT)
    start_load(guest, 20)
    guest.run("nvme disconnect -d ${C##*/}; [ ! -e $N ]")
    stop_load(guest)
    guest.run(reconnect(door))
    door.settle(guest)
    guest.run(f"{STILL_THERE}; {WORKS}")


def reconnect(door: Door) -> str:
    if isinstance(door, NvmeTcp):
        return connect_command("10.0.2.2", door.ssd.port, door.ssd.nqn)
    return connect_command("127.0.0.1", 4420, Nvmet.nqn)


@pytest.mark.doors("nvme-tcp")
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_target_stops_and_starts_under_load(guest: Guest, door: NvmeTcp, how: str) -> None:
    """The host waits and reconnects; fio does not even see an error, and every block that it wrote is there."""
    guest.run(KEPT)
    start_load(guest, 8)
    time.sleep(2)
    if how == "stop":
        assert door.ssd.stop() == 0
    else:
        door.ssd.kill()
    time.sleep(2)
    door.ssd.start()
    guest.finish("load", 60)
    guest.run(STILL_THERE)


@pytest.mark.doors("vfio-user")
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_device_dies_under_load(bench: Bench, guest: Guest, door: VfioUser, how: str) -> None:
    """The guest gives the drive up, as one that was pulled, and lives on. A guest booted afterwards finds its data.

    QEMU 11.1 neither reconnects nor lets a vfio-user device be unplugged (it ends with an assertion of its own).
    """
    wanted = guest.run(f"{KEPT}; md5sum </run/kept").lines[-1]
    start_load(guest, 60)
    if how == "stop":
        assert door.ssd.stop() == 0
    else:
        door.ssd.kill()
    guest.run("until dmesg | grep 'Disabling device'; do sleep 0.2; done", 40)
    stop_load(guest)
    assert guest.run("blockdev --getsize64 $N").output == "0\n", "nothing can be read from it any more"
    guest.close()
    again = bench.guest()
    assert again.run("dd if=$N bs=64k skip=16 count=32 iflag=direct 2>/dev/null | md5sum").lines[-1] == wanted


@pytest.mark.doors("vfio-user")
def test_a_killed_guest_leaves_the_device_to_the_next(bench: Bench, guest: Guest, door: VfioUser) -> None:
    """QEMU dies under load. The process that serves stays, and the next guest finds what was written."""
    served = door.ssd.process
    wanted = guest.run(f"{KEPT}; md5sum </run/kept").lines[-1]
    start_load(guest, 30)
    guest.close()
    assert door.ssd.process is served
    assert door.ssd.alive()
    again = bench.guest()
    assert again.run("dd if=$N bs=64k skip=16 count=32 iflag=direct 2>/dev/null | md5sum").lines[-1] == wanted
