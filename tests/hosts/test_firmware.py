"""Firmware has NVMe drivers that nobody here wrote either: SeaBIOS, UEFI and U-Boot read the SSD before any kernel."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from disks import SECTOR_BYTES, bios_disk, uefi_disk
from doors import Door, make_door
from guest import Qemu
from serve import flashmob_command

pytestmark = pytest.mark.doors("vfio-user", "emulated")


@pytest.fixture
def disk(request: pytest.FixtureRequest, environment: Path, door_name: str) -> Iterator[Door]:
    """A door with an empty image behind it, not yet open."""
    if door_name == "vfio-user" and flashmob_command() is None:
        pytest.fail("the flashmob command is not installed; run `make install`", pytrace=False)
    door = make_door(door_name)
    yield door
    door.close()
    shutil.rmtree(door.folder, ignore_errors=True)


def fill(door: Door, content: bytes) -> None:
    """The image starts with the content and is as large as the SSD."""
    with door.image.open("wb") as file:
        file.write(content)
        file.truncate(1 << 30)


def test_seabios_boots(disk: Door, environment: Path) -> None:
    """The BIOS loads the boot sector, which reads another sector, prints it and writes a third."""
    fill(disk, bios_disk("boot sector: read by SeaBIOS\r\n"))
    disk.open()
    with Qemu(environment, disk.machine().arguments()) as machine:
        shown = machine.wait_for_console("boot sector: done", 30)
    assert "boot sector: read by SeaBIOS" in shown
    disk.close()
    with disk.image.open("rb") as file:
        file.seek(200 * SECTOR_BYTES)
        assert file.read(30) == b"boot sector: read by SeaBIOS\r\n"


def test_uefi_boots(disk: Door, environment: Path) -> None:
    """OVMF finds a FAT file system on the SSD and starts the program in it."""
    fill(disk, uefi_disk())
    disk.open()
    firmware = environment / "qemu/usr/share/OVMF"
    variables = disk.folder / "variables.fd"
    shutil.copyfile(firmware / "OVMF_VARS_4M.fd", variables)
    flash = ["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={firmware / 'OVMF_CODE_4M.fd'}"]
    flash += ["-drive", f"if=pflash,unit=1,format=raw,file={variables}"]
    with Qemu(environment, disk.machine().arguments() + flash) as machine:
        machine.wait_for_console("efi program: started", 90)


def test_u_boot_reads_and_writes(disk: Door, environment: Path) -> None:
    """U-Boot's commands, typed at its prompt."""
    fill(disk, b"flashmob, read by U-Boot".ljust(SECTOR_BYTES, b"\0"))
    disk.open()
    image = environment / "qemu/usr/lib/u-boot/qemu-x86_64/u-boot.rom"
    # Its PCI code does not look behind bridges.
    with Qemu(environment, [*disk.machine(root_ports=False).arguments(), "-bios", str(image)]) as machine:
        machine.wait_for_console("stop autoboot", 30)
        machine.type("\n")
        machine.wait_for_console("=> ", 10)
        machine.type("pci enum; nvme scan; nvme info; nvme read 1000000 0 1; nvme write 1000000 64 1; echo e''nd\n")
        machine.wait_for_console("end\n", 20)
    disk.close()
    with disk.image.open("rb") as file:
        file.seek(100 * SECTOR_BYTES)
        assert file.read(24) == b"flashmob, read by U-Boot"
