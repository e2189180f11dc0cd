"""What a Linux host does when the SSD misbehaves: the table of docs/guide/faults.md, row by row."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from conftest import Bench
from doors import NvmeTcp, Ours
from guest import Guest

pytestmark = pytest.mark.doors("vfio-user", "nvme-tcp")

READ = "dd if=$N of=/run/found bs=4096 skip=256 count=1 iflag=direct"
WRITE = "dd if=/run/kept of=$N bs=4096 seek=256 oflag=direct"
LBAS = "lba=2048-2055"
"""The blocks of READ and WRITE, which nobody else touches."""
PATIENCE_MS = 1500
"""How long the driver waits for a command; 30 s unless told otherwise."""


@pytest.fixture
def faulty(guest: Guest, door: Ours) -> Iterator[Ours]:
    """A door whose SSD can be told to misbehave; the blocks that are read hold known data."""
    guest.run(
        f"""
        # Where the driver offers several paths, the one that waits is a device of its own.
        for queue in /sys/block/nvme*/queue /sys/class/nvme/nvme*/nvme*/queue; do
          [ ! -e $queue/io_timeout ] || echo {PATIENCE_MS} >$queue/io_timeout
        done
        dd if=/dev/urandom of=/run/kept bs=4096 count=1; {WRITE}; dmesg -c >/dev/null
        """
    )
    yield door
    if door.ssd.alive():
        door.ssd.set_faults()


def kernel_log(guest: Guest) -> str:
    return guest.run("dmesg").output


def test_a_bad_block_is_an_error_for_the_application(guest: Guest, faulty: Ours) -> None:
    faulty.ssd.set_faults(f"error on=read {LBAS}")
    refused = guest.run(READ, check=False)
    assert refused.status != 0
    assert "No data available" in refused.output, "ENODATA, as for any bad block"
    assert "critical medium error" in kernel_log(guest)
    guest.run("dd if=$N of=/dev/null bs=4096 count=1 iflag=direct")


def test_an_error_that_may_be_retried_is(guest: Guest, faulty: Ours) -> None:
    """Write Fault has no Do Not Retry bit: the driver tries again, and the application sees nothing."""
    faulty.ssd.set_faults(f"error on=write {LBAS} times=2")
    guest.run(f"{WRITE}; {READ}; cmp /run/kept /run/found")


def test_delays_are_waited_for(guest: Guest, faulty: Ours) -> None:
    faulty.ssd.set_faults(f"delay on=read {LBAS} delay=700ms")
    assert guest.run(f"{READ}; cmp /run/kept /run/found").seconds > 0.7
    assert "timeout" not in kernel_log(guest)


def test_reordered_completions_are_no_matter(guest: Guest, faulty: Ours) -> None:
    faulty.ssd.set_faults("reorder p=0.3 delay=20ms")
    guest.run(
        "fio --name=job --filename=$N --direct=1 --ioengine=io_uring --iodepth=32 --rw=randwrite --bs=4k --size=4m "
        "--offset=64m --verify=crc32c --verify_fatal=1 --output-format=terse"
    )


def test_a_lost_completion_costs_a_timeout(guest: Guest, faulty: Ours) -> None:
    """The driver gives the command up, resets or reconnects, and sends it again."""
    faulty.ssd.set_faults(f"lose on=read {LBAS} times=1")
    assert guest.run(f"{READ}; cmp /run/kept /run/found").seconds > PATIENCE_MS / 1000 - 0.2
    assert "timeout" in kernel_log(guest)
    faulty.settle(guest)


def test_corrupted_data_is_for_applications_to_find(guest: Guest, faulty: Ours) -> None:
    faulty.ssd.set_faults(f"corrupt on=read {LBAS} times=1")
    assert guest.run(f"{READ}; cmp /run/kept /run/found", check=False).status != 0
    guest.run(f"{READ}; cmp /run/kept /run/found")
    assert "error" not in kernel_log(guest).lower()


def test_a_fatal_controller_is_reset(guest: Guest, faulty: Ours) -> None:
    faulty.ssd.set_faults(f"fatal on=read {LBAS} times=1")
    guest.run(f"{READ}; cmp /run/kept /run/found")
    assert "reset" in kernel_log(guest) or "reconnect" in kernel_log(guest).lower()
    faulty.settle(guest)


def test_a_dropped_connection(bench: Bench, guest: Guest, faulty: Ours) -> None:
    """Over the network the host reconnects and sends again; a PCIe device was pulled."""
    faulty.ssd.set_faults(f"drop on=read {LBAS} times=1")
    if isinstance(faulty, NvmeTcp):
        guest.run(f"{READ}; cmp /run/kept /run/found")
        faulty.settle(guest)
        return
    assert guest.run(READ, check=False).status != 0
    guest.run("until dmesg | grep 'Disabling device'; do sleep 0.2; done", 20)
    served = faulty.ssd.process
    bench.discard_guest()
    time.sleep(0.1)
    assert faulty.ssd.process is served
    bench.guest().run("dd if=$N of=/dev/null bs=4096 skip=256 count=1 iflag=direct")
