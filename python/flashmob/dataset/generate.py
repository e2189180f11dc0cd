"""Data sets of made-up files with checksums: equal seeds make equal bytes, on every machine."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from flashmob.dataset.manifest import CHECKSUMS_NAME, Entry, checksums_text
from flashmob.dataset.order import _mixed
from flashmob.errors import ConfigError
from flashmob.outputs import check_folder, write_text

_PIECE_BYTES = 4 << 20


def _images(files: int) -> Iterator[tuple[str, float]]:
    # Sizes of photographs: most near the mean, some a multiple of it (of ImageNet's about a third to five times).
    for number in range(files):
        yield f"class-{number % 100:03}/image-{number:07}.bin", (0.35, 0.6, 0.8, 1.0, 1.1, 1.25, 1.6, 0.9)[number % 8]


def _videos(files: int) -> Iterator[tuple[str, float]]:
    for number in range(files):
        yield f"clips/video-{number:05}.bin", (0.5, 1.0, 1.5)[number % 3]


def _huge(files: int) -> Iterator[tuple[str, float]]:
    for number in range(files):
        yield f"huge-{number:03}.bin", 1.0


# kind -> (names and sizes as shares of the size that is asked for, how many files and how large if nothing is said)
KINDS: dict[str, tuple[Callable[[int], Iterator[tuple[str, float]]], int, int]] = {
    "images": (_images, 1000, 110_000),
    "videos": (_videos, 30, 8_000_000),
    "huge": (_huge, 1, 256_000_000),
}


def make_files(
    folder: str | os.PathLike[str],
    kind: str = "images",
    *,
    files: int | None = None,
    size_bytes: int | None = None,
    seed: int = 0,
) -> list[Entry]:
    """Writes a data set into an empty folder, and the list of its checksums beside it.

    Args:
        folder: made where it is missing.
        kind: "images" (many small files in a hundred folders), "videos" (some large ones) or "huge".
        files: how many; by default what the kind has.
        size_bytes: of a file, about: sizes vary, so that most end within a block.
        seed: names the content.

    Raises:
        ConfigError: naming what is not possible and the fix.
    """
    if kind not in KINDS:
        raise ConfigError(f"kind = {kind} is not possible: use {', '.join(KINDS)}")
    shape, default_files, default_bytes = KINDS[kind]
    count = default_files if files is None else files
    mean = default_bytes if size_bytes is None else size_bytes
    if count < 1:
        raise ConfigError(f"files = {count} is not possible: use 1 or more")
    if mean < 1:
        raise ConfigError(f"size_bytes = {mean} is not possible: use 1 or more")
    root = check_folder(folder, "folder")
    if any(root.iterdir()):
        raise ConfigError(f"{root} holds something already; name an empty folder, or a new one")
    entries = []
    for number, (name, share) in enumerate(shape(count)):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Odd lengths: tails within a block are what goes wrong first.
        length = max(1, int(mean * share) - number % 97)
        entries.append(Entry(f"/{name}", length, _write(path, length, seed, number)))
    write_text(root / CHECKSUMS_NAME, checksums_text(entries, kind=kind, seed=seed))
    return entries


def _write(path: Path, length: int, seed: int, number: int) -> int:
    crc32 = 0
    with path.open("wb") as file:
        for begin in range(0, length, _PIECE_BYTES):
            piece = _content(begin, min(_PIECE_BYTES, length - begin), seed, number)
            crc32 = zlib.crc32(piece, crc32)
            file.write(piece)
    return crc32


def _content(begin: int, length: int, seed: int, number: int) -> memoryview:
    """Bytes of a file from `begin`, a multiple of 8, on."""
    key = int(_mixed(np.array([(seed << 32 ^ number) & 0xFFFF_FFFF_FFFF_FFFF], np.uint64))[0])
    words = np.arange(begin // 8, (begin + length + 7) // 8, dtype=np.uint64) ^ np.uint64(key)
    # Little-endian everywhere.
    return _mixed(words).astype("<u8").view(np.uint8)[:length].data
