"""The limits of this process's container: processor time and memory (cgroup versions 1 and 2), for the doctor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Version 1 writes a limit that is none as the largest multiple of a page; nothing that large is a limit.
_NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Limits:
    """What the control groups of this process allow; None where they set no limit.

    Attributes:
        cores: processor time a second, in cores.
        memory_bytes: the smallest limit of memory.
    """

    cores: float | None = None
    memory_bytes: int | None = None


def limits(root: Path = Path("/")) -> Limits:
    """Reads them; never raises. `root` is the machine's, for tests."""
    cores: list[float | None] = []
    memory: list[int | None] = []
    for version, controllers, path in _groups(root):
        if version == 2 or "cpu" in controllers:
            cores += [_quota(folder) for folder in _folders(root, version, "cpu", path)]
        if version == 2 or "memory" in controllers:
            memory += [_memory(folder) for folder in _folders(root, version, "memory", path)]
    return Limits(
        cores=min((quota for quota in cores if quota is not None), default=None),
        memory_bytes=min((limit for limit in memory if limit is not None), default=None),
    )


def _groups(root: Path) -> Iterator[tuple[int, list[str], str]]:
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        yield (2, [], path) if number == "0" and not controllers else (1, controllers.split(","), path)


def _folders(root: Path, version: int, controller: str, path: str) -> Iterator[Path]:
    """The group's folder and those above it, whose limits hold too.

    In a container the path may be the one outside, while the mount shows the container's own group as its root.
    """
    mounts = ["sys/fs/cgroup", "sys/fs/cgroup/unified"] if version == 2 else [f"sys/fs/cgroup/{controller}"]
    for mount in mounts:
        top = root / mount
        folder = top / path.strip("/")
        while folder != top:
            yield folder
            folder = folder.parent
        yield top


def _quota(folder: Path) -> float | None:
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    if quota.isdigit() and period.isdigit() and int(period):
        return int(quota) / int(period)
    return None


def _memory(folder: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        limit = _text(folder / name)
        if limit.isdigit() and int(limit) < _NO_LIMIT_BYTES:
            return int(limit)
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
