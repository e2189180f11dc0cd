"""Ways to the bytes of files, behind one seam: the kernel's reads, our NVMe driver, and threads of a GPU.

A reader lists files, takes reads on without waiting, and tells which have ended. It is for one thread at a time, and
for the process that opened it; a Place is what other processes open readers of their own from.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from flashmob.dataset.manifest import CHECKSUMS_NAME, CHECKSUMS_PATH, Manifest, list_bytes, parse_checksums
from flashmob.dataset.posix import Ended, PosixThreads, read_at_most
from flashmob.device import core_device, core_module
from flashmob.errors import ConfigError
from flashmob.options import is_target
from flashmob.outputs import plain
from flashmob.profiles import load_profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashmob import _core
    from flashmob.models import Profile

BACKENDS = ("posix", "io_uring", "driver", "gpu")
# Those that read files of a directory through the kernel.
_KERNELS = ("posix", "io_uring")
# An emulated SSD for images: its timing is that of the profile, as everywhere.
DEFAULT_PROFILE = "d7-ps1010"
DEFAULT_TIMEOUT_S = 30.0
# Waits in the compiled module cannot see Ctrl-C.
_LOOK_NS = 100_000_000
_GPU_ROUND_BYTES = 8 << 20
_GPU_READ_BYTES = 4096


class FileReadError(OSError):
    """A file that could not be read; the text names it and says why in one sentence."""


class Reader(Protocol):
    """What iterates over files asks of a way to them."""

    def manifest(self, pattern: str) -> Manifest:
        """The files there are, with the checksums that the source holds."""

    def start(self, tag: int, path: str, begin: int, to: NDArray[np.uint8]) -> None:
        """Takes on a read of all of `to` from byte `begin` of a file on; what goes wrong is told by wait()."""

    def wait(self) -> list[Ended]:
        """Waits until at least one read has ended; empty only where none is left."""

    def close(self) -> None:
        """Gives up what has not ended: no buffer is touched from here on, unless a kernel's read hangs."""


@dataclass(frozen=True)
class Place:
    """Where files are, and which way leads to them; it can be pickled.

    Attributes:
        source: a directory, an image, a block device, vfio-user:PATH or nvme-tcp:...
        backend: posix or io_uring (the kernel's file reads), driver (ours) or gpu; "auto" is posix for directories,
            else driver.
        profile: of the emulated SSD on which an image is read, as a private copy: the image is never written.
        device: what extents of a mounted directory are read from, vfio-user:PATH or nvme-tcp:...
        depth: commands in flight; of posix, threads.
        command_bytes: the most that one command moves.
        timeout_s: how long a device may keep silent.
    """

    source: str
    backend: str = "auto"
    profile: str = DEFAULT_PROFILE
    device: str | None = None
    depth: int = 32
    command_bytes: int = 128 << 10
    timeout_s: float = DEFAULT_TIMEOUT_S

    def resolved(self) -> str:
        """The back end that "auto" stands for here.

        Raises:
            ConfigError: where the back end is none, or is not for this source.
        """
        is_directory = not is_target(self.source) and Path(self.source).is_dir()
        backend = self.backend
        if backend == "auto":
            backend = "posix" if is_directory and self.device is None else "driver"
        if backend not in BACKENDS:
            raise ConfigError(f"backend = {backend} is not possible: use auto, {', '.join(BACKENDS)}")
        if backend in _KERNELS and not is_directory:
            raise ConfigError(
                f"backend = {backend} reads a directory, and {self.source} is none; use driver, or mount it"
            )
        if backend in _KERNELS and self.device is not None:
            raise ConfigError(f"device = {self.device} is for backend driver; leave it out, or use that")
        if backend not in _KERNELS and is_directory and self.device is None:
            raise ConfigError(
                f"backend = {backend} reads a device, and {self.source} is a directory; name the device that it lies "
                "on as device, or use posix"
            )
        if backend == "gpu" and (is_target(self.source) or is_directory):
            raise ConfigError(f"backend = gpu reads images, and {self.source} is none; use driver")
        if not is_directory and self.device is not None:
            raise ConfigError(f"device = {self.device} is for directories; {self.source} is read from itself")
        return backend

    def open(self) -> Reader:
        """A reader for this process.

        Raises:
            ConfigError, ExtentError: in one sentence.
        """
        backend = self.resolved()
        if backend == "posix":
            return PosixReader(Path(self.source), self.depth)
        if backend == "io_uring":
            return UringReader(Path(self.source), self.depth)
        return GpuReader(self) if backend == "gpu" else DriverReader(self)


class PosixReader(PosixThreads):
    """The kernel's own file reads, by some threads: what the others are compared with."""

    def manifest(self, pattern: str) -> Manifest:
        """See Reader."""
        return _directory_manifest(self._root, pattern)


class UringReader:
    """The kernel's own file reads by io_uring, by one thread."""

    def __init__(self, root: Path, depth: int) -> None:
        self._root = root
        self._reads: _core.KernelFileReads = core_module().KernelFileReads(os.fsencode(root), depth)

    def manifest(self, pattern: str) -> Manifest:
        """See Reader."""
        return _directory_manifest(self._root, pattern)

    def start(self, tag: int, path: str, begin: int, to: NDArray[np.uint8]) -> None:
        """See Reader."""
        self._reads.start(tag, os.fsencode(path), begin, core_module().HeldBuffer(to, True))

    def wait(self) -> list[Ended]:
        """See Reader."""
        while not (done := self._reads.wait(_LOOK_NS)) and self._reads.unfinished():
            pass
        return [Ended(one.tag, one.error) for one in done]

    def close(self) -> None:
        """See Reader. Waits a moment for what is in flight; what hangs keeps its memory."""
        self._reads.close()


class DriverReader:
    """Our NVMe driver, by the files' extents: the kernel's file system is not asked for data."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._source = _extent_source(place)
        self._reads = _file_reads(place)
        self._plans: dict[str, _core.FilePlan] = {}
        self._failed: list[Ended] = []

    def manifest(self, pattern: str) -> Manifest:
        """See Reader."""
        return _manifest(self._source, pattern)

    def start(self, tag: int, path: str, begin: int, to: NDArray[np.uint8]) -> None:
        """See Reader. Where a file lies is looked up once; it is that until the reader is closed."""
        core = core_module()
        try:
            plan = self._plans.get(path)
            if plan is None:
                plan = self._plans[path] = core.FilePlan(self._source, os.fsencode(path))
            self._reads.start(tag, plan, begin, to.nbytes, core.HeldBuffer(to, True), 0)
        except core.ExtentError as error:
            self._failed.append(Ended(tag, str(error)))
        except IndexError:
            self._failed.append(Ended(tag, f"it ends at byte {plan.size_bytes if plan else 0}; it has become shorter"))

    def wait(self) -> list[Ended]:
        """See Reader."""
        if self._failed:
            failed, self._failed = self._failed, []
            return failed
        while self._reads.unfinished():
            if done := self._reads.wait(_LOOK_NS):
                return [Ended(one.tag, one.error) for one in done]
        return [Ended(one.tag, one.error) for one in self._reads.wait(0)]

    def counts(self) -> _core.FileReadCounts:
        """What was asked of the device so far."""
        return self._reads.counts()

    def close(self) -> None:
        """See Reader."""
        self._reads.close()


class GpuReader:
    """Threads of a GPU that read blocks, each its own (flashmob.gpu); on the CPU where there is no GPU.

    One read at a time, in rounds: all blocks of a round are asked for at once, and then laid where they belong.
    """

    def __init__(self, place: Place) -> None:
        from flashmob import gpu

        self._source = _extent_source(place)
        self._gpu = gpu.attach(_on_image(place))
        self._lba_bytes = self._gpu.ssds[0].lba_bytes[0]
        self._room = self._gpu.empty(_GPU_ROUND_BYTES)
        self._started: list[tuple[int, str, int, NDArray[np.uint8]]] = []
        self._plans: dict[str, list[_core.FileExtent]] = {}

    def manifest(self, pattern: str) -> Manifest:
        """See Reader."""
        return _manifest(self._source, pattern)

    def start(self, tag: int, path: str, begin: int, to: NDArray[np.uint8]) -> None:
        """See Reader."""
        self._started.append((tag, path, begin, to))

    def wait(self) -> list[Ended]:
        """See Reader."""
        if not self._started:
            return []
        tag, path, begin, to = self._started.pop(0)
        try:
            self._read(path, begin, to)
        except (RuntimeError, OSError) as error:
            return [Ended(tag, str(error))]
        return [Ended(tag, "")]

    def close(self) -> None:
        """See Reader."""
        self._started.clear()
        self._gpu.close()

    def _read(self, path: str, begin: int, to: NDArray[np.uint8]) -> None:
        if path not in self._plans:
            self._plans[path] = core_module().FilePlan(self._source, os.fsencode(path)).extents
        done = 0
        for extent in self._plans[path]:
            first, end = max(extent.file_offset, begin), min(extent.file_offset + extent.bytes, begin + to.nbytes)
            if first >= end:
                continue
            flags = set(extent.flags())
            part = to[first - begin : end - begin]
            if flags & {"hole", "unwritten"}:
                part[:] = 0
            elif flags & {"delalloc", "unknown", "encoded", "encrypted"}:
                raise FileReadError(f"at byte {first} the file's bytes do not lie on the device as they are")
            else:
                self._gather(extent.device_offset + first - extent.file_offset, part)
            done += end - first
        if done != to.nbytes:
            raise FileReadError(f"it ends at byte {begin + done}; it has become shorter")

    def _gather(self, offset: int, to: NDArray[np.uint8]) -> None:
        block = self._lba_bytes
        while to.nbytes:
            first, skip = divmod(offset, block)
            taken = min(to.nbytes, _GPU_ROUND_BYTES - skip)
            count = -(-(skip + taken) // block)
            # A page a thread, and what is left block by block.
            page = max(1, _GPU_READ_BYTES // block)
            whole = count // page * page
            self._round(first, whole, page, 0)
            self._round(first + whole, count - whole, 1, whole)
            to[:taken] = self._room.numpy()[skip : skip + taken]
            to = to[taken:]
            offset += taken

    def _round(self, lba: int, count: int, blocks: int, at: int) -> None:
        if count:
            lbas = np.arange(lba, lba + count, blocks, dtype=np.uint64)
            room = self._room.numpy()[at * self._lba_bytes :][: count * self._lba_bytes]
            self._gpu.gather_blocks(lbas, room, blocks=blocks)


def _directory_manifest(root: Path, pattern: str) -> Manifest:
    """What is no plain file is left out; links are not followed."""
    problems: list[str] = []
    files = list(_walk(root, problems))
    list_path = root / CHECKSUMS_NAME
    known = None
    if list_path.is_file():
        most = list_bytes(len(files), list_path.stat().st_size, str(list_path))
        known = parse_checksums(read_at_most(list_path, most), str(list_path))
    return Manifest.of(files, pattern=pattern, checksums=known, problems=problems)


def _walk(root: Path, problems: list[str]) -> Iterator[tuple[str, int]]:
    def failed(error: OSError) -> None:
        problems.append(plain(f"{error.filename}: {error.strerror}"))

    for folder, _, names in os.walk(root, onerror=failed):
        for name in names:
            path = Path(folder) / name
            try:
                found = path.lstat()
            except OSError as error:
                failed(error)
                continue
            if stat.S_ISREG(found.st_mode):
                yield f"/{path.relative_to(root).as_posix()}", found.st_size


def _extent_source(place: Place) -> _core.ExtentSource:
    source: _core.ExtentSource = core_module().ExtentSource.open(
        os.fsencode(place.source), timeout_ns=int(place.timeout_s * 1e9)
    )
    # A file that is no image lies somewhere else than in itself.
    if place.device is None and os.fsdecode(source.device()) != place.source:
        raise ConfigError(
            f"{place.source} holds neither an ext4 nor an XFS file system; name an image that does, or a directory"
        )
    return source


def _manifest(source: _core.ExtentSource, pattern: str) -> Manifest:
    infos = [info for info in source.files() if info.kind == "file"]
    problems = source.problems()
    files = [(os.fsdecode(info.path), info.size_bytes) for info in infos]
    known: Mapping[str, tuple[int, int]] | None = None
    for path, size_bytes in files:
        if path == CHECKSUMS_PATH:
            most = list_bytes(len(files), size_bytes, path)
            known = parse_checksums(source.read(os.fsencode(path), 0, most), path)
    return Manifest.of(files, pattern=pattern, checksums=known, problems=problems)


def _on_image(place: Place) -> Profile:
    media = {"subsystem.namespaces.0.media": f"cow:{Path(place.source).absolute()}"}
    return load_profile(place.profile, media | {"subsystem.namespaces.0.size_bytes": 0})


def _file_reads(place: Place) -> _core.FileReads:
    core = core_module()
    target = place.device or place.source
    how = (place.depth, place.command_bytes, int(place.timeout_s * 1e9))
    if is_target(target):
        opened: _core.FileReads = core.FileReads.open_target(target, *how)
    else:
        opened = core.FileReads.open_device(core_device(_on_image(place)), *how)
    return opened
