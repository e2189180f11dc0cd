"""Disks to boot from, made from nothing: a sector for a BIOS, a FAT file system with a program for UEFI."""

from __future__ import annotations

import struct
import subprocess
import tempfile
from pathlib import Path

SECTOR_BYTES = 512
SOURCES = Path(__file__).with_name("firmware")


def assemble(source: str, emulation: str, origin: int) -> bytes:
    """The machine code of one source file, linked to run at `origin`."""
    with tempfile.TemporaryDirectory() as folder:
        made, linked = Path(folder) / "made.o", Path(folder) / "linked"
        width = "--32" if emulation == "elf_i386" else "--64"
        subprocess.run(["as", width, "-o", str(made), str(SOURCES / source)], check=True)
        how = ["-m", emulation, f"-Ttext={origin:#x}", "--oformat=binary"]
        subprocess.run(["ld", *how, "-o", str(linked), str(made)], check=True)
        return linked.read_bytes()


def bios_disk(text: str) -> bytes:
    """Sectors 0 to 100: the boot sector, and the text that it prints."""
    sector = assemble("boot_sector.S", "elf_i386", 0x7C00)
    assert len(sector) == SECTOR_BYTES
    return sector.ljust(100 * SECTOR_BYTES, b"\0") + text.encode().ljust(SECTOR_BYTES, b"\0")


def uefi_disk() -> bytes:
    """A FAT16 file system without partitions, with the program where firmware looks for one: EFI/BOOT/BOOTX64.EFI."""
    program = assemble("efi_program.S", "elf_x86_64", 0)
    sectors, per_cluster, roots, fat_sectors = 65535, 4, 512, 64
    boot = b"\xeb\x3c\x90flashmob" + struct.pack(
        "<HBHBHHBHHHLLBBBL",
        SECTOR_BYTES,
        per_cluster,
        1,
        2,
        roots,
        sectors,
        0xF8,
        fat_sectors,
        32,
        2,
        0,
        0,
        0x80,
        0,
        0x29,
        1,
    )
    boot += b"FLASHMOB   FAT16   "
    boot = boot.ljust(SECTOR_BYTES - 2, b"\0") + b"\x55\xaa"
    # Clusters 2, 3 and 4 hold EFI, BOOT and the program; each is the last of its chain.
    assert len(program) <= per_cluster * SECTOR_BYTES
    fat = struct.pack("<5H", 0xFFF8, 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF).ljust(fat_sectors * SECTOR_BYTES, b"\0")

    def entry(name: bytes, attributes: int, cluster: int, size: int = 0) -> bytes:
        # Date and time of 1980; nobody looks.
        return struct.pack("<11sBBBHHHHHHHL", name, attributes, 0, 0, 0, 0x21, 0x21, 0, 0, 0x21, cluster, size)

    def directory(own: int, parent: int, inside: bytes) -> bytes:
        listed = entry(b".          ", 0x10, own) + entry(b"..         ", 0x10, parent) + inside
        return listed.ljust(per_cluster * SECTOR_BYTES, b"\0")

    root = entry(b"EFI        ", 0x10, 2).ljust(roots * 32, b"\0")
    efi = directory(2, 0, entry(b"BOOT       ", 0x10, 3))
    inner = directory(3, 2, entry(b"BOOTX64 EFI", 0x20, 4, len(program)))
    return boot + fat + fat + root + efi + inner + program
