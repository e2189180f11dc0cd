"""What a study of interfaces is about: a file or a block device, or an emulated SSD that our own driver drives."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flashmob.errors import ConfigError
from flashmob.explain import did_you_mean
from flashmob.options import is_target
from flashmob.profiles import profile_names
from flashmob.units import parse_size

# Marks a file as one that a study made, so that another run of the study may write to it.
_MARK = "user.flashmob.study"
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


def study_target(text: str, *, size: str | None, allow_writes: bool) -> StudyTarget:
    """What TARGET names; a file that is not there is made if `size` says how large, and belongs to studies then.

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
        _make(path, size)
    elif size is not None and not is_own(path):
        raise ConfigError(f"--size {size} is for a file that the study makes, and {text} is there; leave it out")
    return StudyTarget(str(path), False, allow_writes or is_own(path))


def is_own(path: Path) -> bool:
    """Whether a study made this file."""
    try:
        return stat.S_ISREG(path.stat().st_mode) and os.getxattr(path, _MARK) == b"1"
    except OSError:
        return False


def _make(path: Path, size: str) -> None:
    from flashmob import _core

    try:
        bytes_ = parse_size(size)
    except ValueError as error:
        raise ConfigError(f"--size {size} is not possible: {error}") from None
    _core.create_interface_file(str(path), bytes_, CONTENT_SEED)
    # Where the file system has no attributes, a later run asks to be allowed.
    with suppress(OSError):
        os.setxattr(path, _MARK, b"1")
