"""Which drives there are, what uses them, and what is written to hand one over, over made trees of sysfs and /proc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flashmob
import pytest
from flashmob.errors import ConfigError
from flashmob.pci import Machine, carry_out

ADDRESS = "0000:00:04.0"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One drive of the kernel's, nvme0n1 with a partition, and a network card."""
    bus = tmp_path / "sys/bus/pci"
    drive = bus / "devices" / ADDRESS
    write(drive / "class", "0x010802\n")
    write(drive / "driver_override", "(null)\n")
    write(bus / "devices/0000:00:05.0/class", "0x020000\n")
    for driver in ("nvme", "vfio-pci"):
        write(bus / "drivers" / driver / "unbind", "")
    (drive / "driver").symlink_to("../../drivers/nvme")
    (drive / "iommu_group").symlink_to("../../../../kernel/iommu_groups/3")
    (drive / "nvme/nvme0/nvme0n1").mkdir(parents=True)
    block = tmp_path / "sys/class/block/nvme0n1"
    write(block / "dev", "259:0\n")
    write(block / "nvme0n1p1/dev", "259:1\n")
    write(block / "nvme0n1p1/partition", "1\n")
    (block / "holders").mkdir()
    (block / "nvme0n1p1/holders").mkdir()
    write(tmp_path / "proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    write(tmp_path / "proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n")
    return Machine(tmp_path / "sys", tmp_path / "proc")


def test_lists_drives_alone(machine: Machine) -> None:
    (drive,) = machine.drives()
    assert (drive.address, drive.driver, drive.iommu_group) == (ADDRESS, "nvme", "3")
    assert (drive.disks, drive.uses) == (("nvme0n1",), ())
    assert Machine(machine.sysfs / "nowhere", machine.proc).drives() == []


def test_with_multipath_the_disk_is_the_subsystems(machine: Machine) -> None:
    folder = machine.sysfs / "bus/pci/devices" / ADDRESS / "nvme/nvme0"
    (folder / "nvme0n1").rename(folder / "nvme0c1n1")
    assert machine.drive(ADDRESS).disks == ("nvme0n1",)


def test_binds_a_drive_that_nothing_uses(machine: Machine) -> None:
    steps = machine.bind_steps(ADDRESS)
    bus = machine.sysfs / "bus/pci"
    assert steps == [
        (bus / "devices" / ADDRESS / "driver_override", "vfio-pci\n"),
        (bus / "drivers/nvme/unbind", ADDRESS),
        (bus / "drivers_probe", ADDRESS),
    ]
    carry_out(steps)
    assert (bus / "drivers_probe").read_text() == ADDRESS


def test_gives_it_back(machine: Machine) -> None:
    assert machine.unbind_steps(ADDRESS) == []
    drive = machine.sysfs / "bus/pci/devices" / ADDRESS
    (drive / "driver").unlink()
    (drive / "driver").symlink_to("../../drivers/vfio-pci")
    (drive / "nvme/nvme0/nvme0n1").rmdir()
    assert machine.bind_steps(ADDRESS) == []
    assert [text for _, text in machine.unbind_steps(ADDRESS)] == ["\n", ADDRESS, ADDRESS]


@pytest.mark.parametrize("part", ["nvme0n1", "nvme0n1p1"])
def test_a_drive_in_use_is_refused(machine: Machine, part: str) -> None:
    number = "259:0" if part == "nvme0n1" else "259:1"
    folder = machine.sysfs / "class/block/nvme0n1"
    place = folder if part == "nvme0n1" else folder / part

    def refused(why: str) -> None:
        with pytest.raises(ConfigError, match=f"{ADDRESS} is in use: {part} {why}; end that first"):
            machine.bind_steps(ADDRESS)

    mounts = machine.proc / "self/mountinfo"
    before = mounts.read_text()
    mounts.write_text(f"{before}30 22 {number} / /data rw - xfs /dev/mapper/x rw\n")
    refused("is mounted on /data")
    mounts.write_text(f"{before}30 22 0:40 / /pool rw shared:1 - btrfs /dev/{part} rw\n")
    refused("is mounted on /pool")
    mounts.write_text(before)
    swaps = machine.proc / "swaps"
    swaps.write_text(f"Filename Type Size Used Priority\n/dev/{part} partition 1 0 -2\n")
    refused("is swap space")
    swaps.write_text("")
    (place / "holders/md0").mkdir()
    refused("belongs to md0")
    (place / "holders/md0").rmdir()
    files = machine.proc / "123/fd"
    files.mkdir(parents=True)
    (files / "3").symlink_to(f"/dev/{part}")
    with pytest.raises(ConfigError, match=f"process 123 has {part} open"):
        machine.bind_steps(ADDRESS)


def test_what_is_no_drive_or_cannot_be_lent_is_refused(machine: Machine) -> None:
    for address, why in (("00:04.0", "is no address"), ("0000:00:05.0", "is no NVMe drive"), ("../x", "is no address")):
        with pytest.raises(ConfigError, match=why):
            machine.bind_steps(address)
    (machine.sysfs / "bus/pci/drivers/vfio-pci/unbind").unlink()
    (machine.sysfs / "bus/pci/drivers/vfio-pci").rmdir()
    with pytest.raises(ConfigError, match="sudo modprobe vfio-pci"):
        machine.bind_steps(ADDRESS)
    (machine.sysfs / "bus/pci/devices" / ADDRESS / "iommu_group").unlink()
    with pytest.raises(ConfigError, match="has no IOMMU before it"):
        machine.bind_steps(ADDRESS)


def test_a_kernel_that_refuses_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        carry_out([(tmp_path / "none/unbind", ADDRESS)])


@pytest.mark.parametrize(
    ("target", "options", "says"),
    [
        ("pci:0000:00:99.9", {}, "write pci:ADDRESS as flashmob pci list has it"),
        ("pci:nvme0", {}, "write pci:ADDRESS as flashmob pci list has it"),
        ("pci:0000:fe:1f.7", {"size": "1G"}, "pci:0000:fe:1f.7 is a drive of this machine; leave it out"),
        ("pci:0000:fe:1f.7", {"tls_key": "x"}, "is for NVMe/TCP, and pci:0000:fe:1f.7 is not"),
        ("pci:0000:fe:1f.7", {}, "0000:fe:1f.7"),
        ("pci:fe:1f.7", {}, "0000:fe:1f.7"),
        ("d7-ps1010", {"allow_writes": True}, "allow_writes is for drives of this machine (pci:ADDRESS)"),
        ("vfio-user:/x", {"allow_writes": True}, "allow_writes is for drives of this machine (pci:ADDRESS)"),
    ],
)
def test_a_run_on_a_drive_that_cannot_be_is_refused_in_a_sentence(
    target: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        flashmob.bench(target, runtime="100ms", **options)
    assert says in str(refused.value)
