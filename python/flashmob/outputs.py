"""Where results go: whether they can be written there, found out before a run, and files that appear when whole."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flashmob.errors import ConfigError


def check_folder(path: str | os.PathLike[str], option: str) -> Path:
    """Makes the folder if need be, and tries it with a file: permissions alone do not tell (/proc, read-only mounts).

    Raises:
        ConfigError: naming the option, what was typed and the fix.
    """
    folder = Path(path).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _try(folder)
    except FileExistsError:
        raise ConfigError(f"{option} {path} is a file; name a folder") from None
    except OSError as error:
        raise ConfigError(f"{option} {path} cannot be written ({_why(error)}); name a folder that can") from None
    return folder


def check_file(path: str | os.PathLike[str], option: str) -> Path:
    """A file that can be written: it is no folder, and its folder is there and takes files.

    Raises:
        ConfigError: naming the option, what was typed and the fix.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        raise ConfigError(f"{option} {path or repr(path)} is a folder; name a file in it")
    if file.exists() and not file.is_file():
        return file  # A device or a pipe: its folder need not take files, and opening it may wait.
    try:
        _try(file.parent)
        if file.exists() and not os.access(file, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise ConfigError(
            f"{option} {path} cannot be written ({_why(error)}); use a folder that exists and that you may write to"
        ) from None
    return file


def check_result(path: str | None, option: str) -> None:
    """A file that can be written, or "-" where standard output can; None is neither.

    Raises:
        ConfigError: naming the option, what was typed and the fix.
    """
    if path == "-":
        if sys.stdout is None:
            raise ConfigError(f"{option} - is standard output, and that is closed; leave it open, or name a file")
    elif path is not None:
        check_file(path, option)


def check_other(
    output: str | os.PathLike[str], option: str, inputs: Mapping[str, str | os.PathLike[str] | None]
) -> None:
    """Refuses to write over what is read: `inputs` are what each was given by -> its path.

    Raises:
        ConfigError: naming both.
    """
    for given, path in inputs.items():
        if path is None:
            continue
        try:
            same = Path(output).expanduser().samefile(Path(path).expanduser())
        except OSError:
            # One that is not there yet is another's only by its name.
            same = Path(output).expanduser().absolute() == Path(path).expanduser().absolute()
        if same:
            raise ConfigError(f"{option} {output} is what {given} names, and would be lost; use another file")


def plain(text: str, keeps: str = "") -> str:
    """Text of a stranger's as it can be shown: bytes that are no text, and what would steer a terminal, as escapes.

    Args:
        text: such as a name that a file system holds.
        keeps: what is left as it is, such as the line feeds of a message.
    """
    return "".join(sign if sign.isprintable() or sign in keeps else _escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    # How Python has bytes of names that are no text.
    byte = ord(sign) - 0xDC00
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else sign.encode("unicode_escape").decode()


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Where to write what is to become this file: it takes its place at the end of the block.

    A full disk thus leaves what was there before, and no empty file. A device or a pipe is written to directly.
    """
    # What a link points to is replaced, not the link.
    file = Path(path).expanduser().resolve()
    if file.exists() and not file.is_file():
        yield file
        return
    part = file.with_name(f".{file.name[:50]}.{os.getpid()}")
    try:
        yield part
        if file.exists():
            part.chmod(file.stat().st_mode & 0o777)
        part.replace(file)
    finally:
        if part.exists():
            part.unlink()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file whole or not at all; see whole_file()."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def _try(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder):
        pass


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
