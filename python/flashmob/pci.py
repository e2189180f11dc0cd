"""NVMe drives of this machine: which driver of the kernel has each, what uses it, and how vfio-pci gets it.

Everything is read from and written to sysfs and /proc, whose places are parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from flashmob.errors import ConfigError

NVME_CLASS = "0x010802"
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class Drive:
    """An NVMe drive on this machine's PCI bus.

    Attributes:
        address: as sysfs has it, 0000:00:04.0.
        driver: the kernel's that has it; empty: none.
        iommu_group: empty without an IOMMU.
        disks: its block devices, such as nvme0n1.
        uses: what uses it, a few words each.
    """

    address: str
    driver: str
    iommu_group: str
    disks: tuple[str, ...]
    uses: tuple[str, ...]


@dataclass(frozen=True)
class Machine:
    """Where the kernel shows this machine."""

    sysfs: Path = field(default=Path("/sys"))
    proc: Path = field(default=Path("/proc"))

    def drives(self) -> list[Drive]:
        """All of them, by address."""
        folder = self.sysfs / "bus/pci/devices"
        found = sorted(folder.iterdir()) if folder.is_dir() else []
        return [self._drive(function) for function in found if _text(function / "class") == NVME_CLASS]

    def drive(self, address: str) -> Drive:
        """The one of this address.

        Raises:
            ConfigError: if there is none.
        """
        if not _ADDRESS.fullmatch(address):
            raise ConfigError(f"{address} is no address of a PCI function; write one as lspci -D does, 0000:00:04.0")
        for drive in self.drives():
            if drive.address == address:
                return drive
        raise ConfigError(f"{address} is no NVMe drive of this machine; flashmob pci list names them")

    def bind_steps(self, address: str) -> list[tuple[Path, str]]:
        """What is to be written where, so that vfio-pci has the drive; nothing if it has.

        Raises:
            ConfigError: if the drive is in use, or the machine cannot lend it.
        """
        drive = self.drive(address)
        if drive.driver == "vfio-pci":
            return []
        if drive.uses:
            raise ConfigError(f"{address} is in use: {'; '.join(drive.uses)}; end that first")
        if not drive.iommu_group:
            raise ConfigError(
                f"{address} has no IOMMU before it; turn it on in the firmware and on the kernel's command line "
                "(intel_iommu=on)"
            )
        if not (self.sysfs / "bus/pci/drivers/vfio-pci").is_dir():
            raise ConfigError("the kernel has not loaded vfio-pci; run: sudo modprobe vfio-pci")
        return self._steps(drive, "vfio-pci")

    def unbind_steps(self, address: str) -> list[tuple[Path, str]]:
        """What is to be written where, so that the kernel's own driver has the drive again; nothing if it has.

        Raises:
            ConfigError: if there is no such drive.
        """
        drive = self.drive(address)
        override = _text(self.sysfs / "bus/pci/devices" / address / "driver_override")
        if drive.driver not in ("", "vfio-pci") or (not drive.driver and override in ("", "(null)") and drive.disks):
            return []
        return self._steps(drive, "")

    def _steps(self, drive: Drive, driver: str) -> list[tuple[Path, str]]:
        function = self.sysfs / "bus/pci/devices" / drive.address
        steps = [(function / "driver_override", f"{driver}\n")]
        if drive.driver:
            steps.append((self.sysfs / "bus/pci/drivers" / drive.driver / "unbind", drive.address))
        return [*steps, (self.sysfs / "bus/pci/drivers_probe", drive.address)]

    def _drive(self, function: Path) -> Drive:
        disks = tuple(sorted(_disks(function)))
        return Drive(
            function.name,
            _link(function / "driver"),
            _link(function / "iommu_group"),
            disks,
            tuple(self._uses(disks)),
        )

    def _uses(self, disks: tuple[str, ...]) -> Iterator[str]:
        mounts, swaps = self._mounts(), self._swaps()
        opened = self._opened()
        for disk in disks:
            folder = self.sysfs / "class/block" / disk
            parts = [disk, *sorted(part.name for part in folder.glob(f"{disk}*") if (part / "partition").exists())]
            for part in parts:
                place = self.sysfs / "class/block" / part if part == disk else folder / part
                number = _text(place / "dev")
                for where in sorted({*mounts.get(number, []), *mounts.get(f"/dev/{part}", [])}):
                    yield f"{part} is mounted on {where}"
                if f"/dev/{part}" in swaps:
                    yield f"{part} is swap space"
                holders = place / "holders"
                for holder in sorted(holders.iterdir()) if holders.is_dir() else []:
                    yield f"{part} belongs to {holder.name}"
                for process in opened.get(f"/dev/{part}", []):
                    yield f"process {process} has {part} open"

    def _mounts(self) -> dict[str, list[str]]:
        """Mount points by number of the device, and by its name: file systems of many devices have other numbers."""
        found: dict[str, list[str]] = {}
        for line in _text(self.proc / "self/mountinfo").splitlines():
            words = line.split()
            if len(words) < 6 or "-" not in words:
                continue
            source = words[words.index("-") + 2 :][:1]
            for key in {words[2], *source}:
                found.setdefault(key, []).append(words[4])
        return found

    def _swaps(self) -> set[str]:
        return {line.split()[0] for line in _text(self.proc / "swaps").splitlines()[1:] if line.split()}

    def _opened(self) -> dict[str, list[str]]:
        """Processes by the block device that they have open, as far as we may see them."""
        found: dict[str, list[str]] = {}
        for process in self.proc.glob("[0-9]*"):
            try:
                links = {str(link.readlink()) for link in (process / "fd").iterdir()}
            except OSError:
                continue  # It has ended, or is another user's.
            for link in links:
                if link.startswith("/dev/nvme"):
                    found.setdefault(link, []).append(process.name)
        return found


def carry_out(steps: list[tuple[Path, str]]) -> None:
    """Writes what bind_steps() or unbind_steps() said.

    Raises:
        ConfigError: if the kernel refuses; what was written before stays.
    """
    for path, text in steps:
        try:
            path.write_text(text)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}; run the command with sudo") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return path.readlink().name
    except OSError:
        return ""


def _disks(function: Path) -> Iterator[str]:
    """A controller's namespaces; with native multipath they hang on a subsystem that several controllers share."""
    for controller in (function / "nvme").glob("nvme*"):
        for namespace in controller.glob("nvme*n*"):
            name = re.sub(r"^(nvme\d+)c\d+(n\d+)$", r"\1\2", namespace.name)
            if re.fullmatch(r"nvme\d+n\d+", name):
                yield name
