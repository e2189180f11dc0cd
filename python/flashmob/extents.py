"""Where the bytes of files lie on a drive: of mounted file systems by FIEMAP, of ext4 and XFS images by their bytes.

    with flashmob.extents.open_extents("disk.img") as source:
        for extent in source.extents("/data/0001.bin"):
            print(extent.file_offset, extent.device_offset, extent.bytes, extent.flags)

Nothing is written, and an image need not be mounted. See docs/guide/extents.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashmob._core import ExtentError as ExtentError

if TYPE_CHECKING:
    from types import TracebackType

    from flashmob._core import ExtentSource as CoreSource
    from flashmob._core import FileInfo as CoreInfo

# Flags of extents that have no place on the device.
NO_PLACE = frozenset({"hole", "delalloc", "unknown"})
_ALL = 2**64 - 1


@dataclass(frozen=True)
class Extent:
    """A part of a file; `device_offset` is None where it has no place: a hole, or bytes that wait to be written."""

    file_offset: int
    device_offset: int | None
    bytes: int
    flags: tuple[str, ...] = ()

    @property
    def reads_as_zeroes(self) -> bool:
        """Whether the file has zeroes here, whatever lies at its place."""
        return "hole" in self.flags or "unwritten" in self.flags


@dataclass(frozen=True)
class File:
    """A name in the source, from its root; `kind` is file, directory, link or other."""

    path: str
    kind: str
    inode: int
    size_bytes: int


class Extents:
    """An open source. For one thread at a time; every method raises ExtentError with one sentence."""

    def __init__(self, core: CoreSource) -> None:
        self._core: CoreSource | None = core

    def __enter__(self) -> Extents:
        """Nothing happens here."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        self.close()

    def close(self) -> None:
        """Closes what it reads; nothing else may follow."""
        self._core = None

    @property
    def file_system(self) -> str:
        """Such as ext4 or xfs."""
        return self._open().file_system()

    @property
    def device(self) -> str:
        """What device offsets count from."""
        return os.fsdecode(self._open().device())

    def files(self) -> list[File]:
        """Everything below the root; what could not be read is in problems()."""
        return [_file(info) for info in self._open().files()]

    def problems(self) -> list[str]:
        """One sentence for each part that the last files() left out."""
        return list(self._open().problems())

    def look_up(self, path: str | os.PathLike[str]) -> File:
        """The file of this name; links are followed within the source."""
        return _file(self._open().look_up(os.fsencode(path)))

    def extents(self, path: str | os.PathLike[str], offset: int = 0, size_bytes: int | None = None) -> list[Extent]:
        """A range of a file, as far as the file goes, without gaps."""
        wanted = _ALL if size_bytes is None else size_bytes
        return [
            Extent(one.file_offset, one.device_offset if one.has_place() else None, one.bytes, tuple(one.flags()))
            for one in self._open().extents(os.fsencode(path), offset, wanted)
        ]

    def read(self, path: str | os.PathLike[str], offset: int = 0, size_bytes: int | None = None) -> bytes:
        """A range of a file, read from the device by its extents."""
        return self._open().read(os.fsencode(path), offset, _ALL if size_bytes is None else size_bytes)

    def _open(self) -> CoreSource:
        if self._core is None:
            raise ExtentError("the source is closed; open it again")
        return self._core


def open_extents(source: str | os.PathLike[str], *, verify_checksums: bool = True) -> Extents:
    """Opens a directory or file of a mounted file system, an image, a block device, or a served SSD (vfio-user:PATH).

    Raises:
        ExtentError: in one sentence, where it cannot be read as it is.
    """
    from flashmob._core import ExtentSource

    return Extents(ExtentSource.open(os.fsencode(source), verify_checksums))


def _file(info: CoreInfo) -> File:
    return File(os.fsdecode(info.path), info.kind, info.inode, info.size_bytes)
