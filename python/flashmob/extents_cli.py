"""flashmob extents: where the bytes of files lie on a drive."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console

from flashmob.cli_options import option
from flashmob.errors import EXIT_WRONG, ConfigError
from flashmob.outputs import plain
from flashmob.units import parse_size

if TYPE_CHECKING:
    from flashmob.extents import Extent, Extents, File

_T = TypeVar("_T")


def extents(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A mounted directory or file, an image, a block device, vfio-user:PATH or nvme-tcp:...",
        ),
    ],
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH]...", help="Files in it, from its root; else all are listed.")
    ] = None,
    range_: Annotated[
        str | None, option(None, "OFFSET+BYTES", "A part of each file, such as 1M+64k.", "--range")
    ] = None,
    unverified: Annotated[
        bool, option(None, None, "Read on where checksums of an image are wrong.", "--unverified")
    ] = False,
    as_json: Annotated[bool, option(None, None, "Print JSON instead.", "--json")] = False,
) -> None:
    """Prints where files lie: ranges of the file, of the device, and what is known of each.

    Of a mounted file system by FIEMAP; of ext4 and XFS images and block devices by their bytes, without mounting them.
    """
    from flashmob.extents import open_extents

    offset, size_bytes = _range(range_)
    with open_extents(source, verify_checksums=not unverified) as opened:
        problems: list[str] = []
        if paths and len(paths) == 1:
            files = wanted = [opened.look_up(paths[0])]
            found = {file.path: opened.extents(file.path, offset, size_bytes) for file in files}
        else:
            if paths:
                files = wanted = [one for path in paths if (one := _tried(problems, opened.look_up, path))]
            else:
                files = opened.files()
                problems += opened.problems()
                wants_all = range_ is not None or [file.kind for file in files] == ["file"]
                wanted = [file for file in files if file.kind == "file"] if wants_all else []
            # One file that cannot be read costs nobody the others.
            tried = {one.path: _tried(problems, opened.extents, one.path, offset, size_bytes) for one in wanted}
            found = {path: extents for path, extents in tried.items() if extents is not None}
        if as_json:
            print(json.dumps(_document(source, opened, files, found, problems), indent=2))
        else:
            _show(opened, files, found)
        for problem in problems:
            typer.echo(f"not read: {plain(problem)}", err=True)
    if problems:
        raise typer.Exit(EXIT_WRONG)


def _tried(problems: list[str], ask: Callable[..., _T], *args: Any) -> _T | None:
    """What `ask` gives; None if it cannot, and then `problems` says why."""
    # Loads the compiled module, which a look at --help does without.
    from flashmob.extents import ExtentError

    try:
        return ask(*args)
    except ExtentError as error:
        problems.append(str(error))
        return None


def _range(text: str | None) -> tuple[int, int | None]:
    if text is None:
        return 0, None
    found = re.fullmatch(r"([^+]+)\+([^+]+)", text)
    if not found:
        raise ConfigError(f"--range {text} is not possible: write OFFSET+BYTES, such as 1M+64k")
    try:
        offset, size_bytes = (parse_size(part, binary=True) for part in found.groups())
    except ValueError as error:
        raise ConfigError(f"--range {text} is not possible: {error}") from None
    if min(offset, size_bytes) < 0:
        raise ConfigError(f"--range {text} is not possible: use 0 or more")
    if max(offset, size_bytes) >= 2**64:
        raise ConfigError(f"--range {text} is not possible: no file is so large; use less")
    return offset, size_bytes


def _document(
    source: str, opened: Extents, files: list[File], found: dict[str, list[Extent]], problems: list[str]
) -> dict[str, Any]:
    return {
        "source": source,
        "file_system": opened.file_system,
        "device": opened.device,
        "files": [
            {"path": file.path, "kind": file.kind, "inode": file.inode, "size_bytes": file.size_bytes}
            | ({"extents": [_extent(one) for one in found[file.path]]} if file.path in found else {})
            for file in files
        ],
        "problems": problems,
    }


def _extent(extent: Extent) -> dict[str, Any]:
    return {
        "file_offset": extent.file_offset,
        "device_offset": extent.device_offset,
        "bytes": extent.bytes,
        "flags": list(extent.flags),
    }


def _show(opened: Extents, files: list[File], found: dict[str, list[Extent]]) -> None:
    console = Console()

    def line(text: str) -> None:
        # As long as it is: a path that is cut, or wrapped by us, cannot be used.
        console.print(text, soft_wrap=True, markup=False, highlight=False)

    line(f"{opened.file_system} on {plain(opened.device)}")
    for file in files:
        if file.path not in found:
            line(f"{file.size_bytes:>16} {file.kind:<9} {plain(file.path)}")
            continue
        line(f"{plain(file.path)}: {file.size_bytes} bytes, inode {file.inode}")
        line(f"{'file offset':>16} {'device offset':>16} {'bytes':>16} flags")
        for one in found[file.path]:
            place = "-" if one.device_offset is None else str(one.device_offset)
            line(f"{one.file_offset:>16} {place:>16} {one.bytes:>16} {' '.join(one.flags)}".rstrip())
