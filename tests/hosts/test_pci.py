"""Our driver on a drive that the guest's kernel lends it: vfio-pci, a virtual IOMMU, QEMU's own NVMe controller."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from guest import Guest, Machine

# No door has a part in it: it is run once, beside the guests of the other door.
pytestmark = pytest.mark.doors("vfio-user")

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("FLASHMOB_PCI_HOST") or ROOT / "build/release/tests/pci_host")
DRIVE_BYTES = 64 << 20
BIND = """
modprobe vfio_iommu_type1; modprobe vfio-pci
address=$(basename $(dirname $(grep -l 0x010802 /sys/bus/pci/devices/*/class | head -n 1)))
drive=/sys/bus/pci/devices/$address
echo vfio-pci >$drive/driver_override
if [ -e $drive/driver ]; then echo $address >$drive/driver/unbind; fi
echo $address >/sys/bus/pci/drivers_probe
"""


def _entry(name: str, mode: int, data: bytes) -> bytes:
    """An entry of a cpio archive in the format that kernels unpack ("newc")."""
    numbers = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


@pytest.fixture(scope="module")
def initramfs(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guest's system with our program in it; kernels unpack archives that follow each other."""
    if not PROGRAM.exists():
        made = subprocess.run(
            ["cmake", "--build", str(ROOT / "build/release"), "--target", "pci_host"], capture_output=True, check=False
        )
        if made.returncode:
            pytest.fail(f"{PROGRAM} cannot be built", pytrace=False)
    system = tmp_path_factory.mktemp("pci") / "initramfs.cpio"
    shutil.copyfile(environment / "initramfs.cpio", system)
    with system.open("ab") as file:
        file.write(bytes(-system.stat().st_size % 512))
        file.write(_entry("bin/pci_host", 0o100755, PROGRAM.read_bytes()) + _entry("TRAILER!!!", 0, b""))
    return system


@pytest.fixture
def guest(environment: Path, initramfs: Path, tmp_path: Path) -> Iterator[Guest]:
    """A guest whose drive vfio-pci has; $address names it."""
    drive = tmp_path / "drive"
    with drive.open("wb") as file:
        file.truncate(DRIVE_BYTES)
    extra = ["-device", "intel-iommu,intremap=on,caching-mode=on"]
    extra += ["-drive", f"file={drive},if=none,id=drive,format=raw,cache=unsafe"]
    extra += ["-device", "nvme,id=nvme0,drive=drive,serial=pci,bus=port0"]
    with Guest(environment, Machine(initramfs=initramfs, extra=extra), append="intel_iommu=on") as started:
        started.run(BIND)
        started.prelude = BIND.splitlines()[2]
        yield started


def test_reads_writes_interrupts_and_reset(guest: Guest) -> None:
    lines = guest.run("pci_host $address").lines
    assert lines[-1] == "all well"
    assert lines.count("interrupts: 20 of 20") == 2
    assert "reset: done" in lines


def test_a_drive_that_is_pulled_ends_the_program(guest: Guest) -> None:
    guest.start("reader", "pci_host $address until-gone")
    guest.run("until grep -q reading /run/reader.out; do sleep 0.1; done")
    guest.monitor("device_del", id="nvme0")
    said = guest.finish("reader")
    assert said.lines[-1].startswith("gone: ")
    guest.prelude = ""
    guest.run("while grep -qs 0x010802 /sys/bus/pci/devices/*/class; do sleep 0.1; done")
