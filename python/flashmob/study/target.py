"""What a study of interfaces is about: a file or a block device, or an emulated SSD that our own driver drives."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from flashmob.errors import ConfigError
from flashmob.explain import did_you_mean
from flashmob.options import is_target
from flashmob.profiles import profile_names
from flashmob.units import exact_size, parse_size

# Marks a file as one that a study made, so that another run of the study may write to it: its inode and size. What
# stands in it is looked at, too, since a mark outlives what somebody else writes there.
_MARK = "user.flashmob.study"
_SECTOR_BYTES = 512
_LOOKED_AT = 64
CONTENT_SEED = 1
DRIVER_SIZE = "256M"


@dataclass(frozen=True, slots=True)
class StudyTarget:
    """Where requests go. `is_driver`: through our user-space driver; else through the kernel's interfaces."""

    name: str
    is_driver: bool
    allow_writes: bool
    # Of a store in memory, for the driver.
    size: str = ""
    # It may be written to since a study made it, and for no other reason.
    is_own: bool = False
    # Device and inode of what was looked at.
    identity: tuple[int, int] | None = None
    # What is to be made under that name, which nothing has yet; 0: it is there.
    missing_bytes: int = 0

    def make(self) -> StudyTarget:
        """The target as it is once its file is there, which is made if it is missing; half a file is not left.

        Raises:
            ConfigError: if it cannot be made.
        """
        if not self.missing_bytes:
            return self
        path = Path(self.name)
        _make(path, self.missing_bytes)
        own = not self.allow_writes and is_own(path)
        allowed = self.allow_writes or own
        return replace(self, allow_writes=allowed, is_own=own, identity=_identity(path), missing_bytes=0)

    @contextmanager
    def to_check(self) -> Iterator[StudyTarget]:
        """Something of the target's kind, size and place that options can be held against before it is made.

        Raises:
            ConfigError: if there is no place for a file; what is raised within names the target, and not its stand-in.
        """
        if not self.missing_bytes:
            yield self
            return
        path = Path(self.name)
        try:
            file = tempfile.NamedTemporaryFile(dir=path.parent, prefix=".flashmob-study-")  # noqa: SIM115
        except OSError as error:
            raise ConfigError(f"{self.name} cannot be made: {error.strerror}; use another place") from None
        with file:
            try:
                # A file with nothing in it takes no room and no time.
                os.ftruncate(file.fileno(), self.missing_bytes)
            except OSError as error:
                raise ConfigError(f"{self.name} cannot have {self.missing_bytes} bytes: {error.strerror}") from None
            try:
                yield replace(self, name=file.name, allow_writes=True, missing_bytes=0)
            except ConfigError as error:
                raise ConfigError(str(error).replace(file.name, self.name)) from None

    def check_same(self) -> None:
        """Looks whether the name still stands for what was looked at, and whether that is still the study's own.

        Raises:
            ConfigError: if not; nothing was written then.
        """
        if self.identity is not None and self.identity != _identity(Path(self.name)):
            raise ConfigError(f"{self.name} is another file than when the study began; start it again")
        if self.is_own and not is_own(Path(self.name)):
            raise ConfigError(f"{self.name} holds what no study wrote; add --allow-writes if it may be overwritten")


def study_target(text: str, *, size: str | None, allow_writes: bool) -> StudyTarget:
    """What TARGET names; make() makes a file that is not there, `size` bytes, and it belongs to studies then.

    Raises:
        ConfigError: if it is nothing that can be studied.
    """
    if is_target(text):
        if size is not None:
            raise ConfigError(f"--size {size} is for a file or an SSD that the study makes; {text} has a size")
        return StudyTarget(text, True, allow_writes)
    if text.endswith(".toml") or (text in profile_names() and not Path(text).exists()):
        return StudyTarget(text, True, allow_writes, size or DRIVER_SIZE)
    path = Path(text).expanduser()
    if not path.exists():
        if size is None:
            hint = did_you_mean(text, profile_names()) if "/" not in text else ""
            raise ConfigError(
                f"{text} is no file, block device, profile or door{hint}; --size 1G makes it a file of that size"
            )
        return StudyTarget(str(path.absolute()), False, allow_writes, missing_bytes=_bytes_of(size))
    if size is not None and not is_own(path):
        raise ConfigError(f"--size {size} is for a file that the study makes, and {text} is there; leave it out")
    if size is not None and _bytes_of(size) != path.stat().st_size:
        raise ConfigError(
            f"--size {size} is not possible: {text} is there, with {exact_size(path.stat().st_size)}; leave it out, or "
            "remove that file first"
        )
    own = not allow_writes and is_own(path)
    name = str(path.absolute())
    return StudyTarget(name, False, allow_writes or own, is_own=own, identity=_identity(path))


def is_own(path: Path) -> bool:
    """Whether a study made this file, and nobody else wrote to it since, as far as places all over it tell."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or os.getxattr(file.fileno(), _MARK) != _mark(found):
                return False
            return all(_is_stamped(file.fileno(), place) for place in _places(found.st_size // _SECTOR_BYTES))
    except OSError:
        return False


def _mark(found: os.stat_result) -> bytes:
    return f"{found.st_ino}:{found.st_size}".encode()


def _places(sectors: int) -> set[int]:
    """The first sector, the last and some in between."""
    return {(sectors - 1) * step // _LOOKED_AT for step in range(_LOOKED_AT + 1)} if sectors else set()


def _is_stamped(file: int, sector: int) -> bool:
    """Whether a sector begins with its place and a word drawn from it, as the study's writes leave it."""
    place = sector * _SECTOR_BYTES
    head = os.pread(file, 16, place)
    return head[:8] == place.to_bytes(8, "little") and len(head) == 16 and any(head[8:])


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _bytes_of(size: str) -> int:
    try:
        bytes_ = parse_size(size)
    except ValueError as error:
        raise ConfigError(f"--size {size} is not possible: {error}") from None
    if bytes_ % _SECTOR_BYTES:
        raise ConfigError(f"--size {size} is not possible: use a multiple of {_SECTOR_BYTES} bytes")
    if bytes_ == 0:
        raise ConfigError(f"--size {size} is not possible: a file of no bytes has nothing to read")
    return bytes_


def _make(path: Path, bytes_: int) -> None:
    from flashmob import _core

    _core.create_interface_file(str(path), bytes_, CONTENT_SEED)
    try:
        # Where the file system has no attributes, a later run asks to be allowed.
        with suppress(OSError):
            os.setxattr(path, _MARK, _mark(path.stat()))
    except KeyboardInterrupt:
        path.unlink(missing_ok=True)
        raise
