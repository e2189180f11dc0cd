"""What a data set consists of: files with sizes, and checksums where somebody has written them down."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from flashmob.errors import ConfigError
from flashmob.outputs import plain

# What make_files() leaves in a folder: the files' sizes and CRC-32s. It is no sample.
CHECKSUMS_NAME = "flashmob-files.json"
CHECKSUMS_PATH = f"/{CHECKSUMS_NAME}"
_SCHEMA, _VERSION = "flashmob-files", 1
# A list is held in memory whole, and a stranger's image can say of it any size: it may have what its files need with
# long names, and no more than a machine can hold several times over.
_LIST_BYTES, _LIST_BYTES_OF_FILE, _LIST_BYTES_MOST = 16 << 20, 1 << 10, 256 << 20
# Of what is wrong with a list, as its own text may be what is wrong.
_WHY_SIGNS = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a data set: its path from the source's root, its size, its CRC-32 where one is known."""

    path: str
    size_bytes: int
    crc32: int | None = None


@dataclass(frozen=True)
class Manifest:
    """The files of a data set, by path. What was not taken in is in problems, one sentence each, fit for a terminal."""

    entries: tuple[Entry, ...]
    problems: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        files: Iterable[tuple[str, int]],
        *,
        pattern: str = "*",
        checksums: Mapping[str, tuple[int, int]] | None = None,
        problems: Iterable[str] = (),
    ) -> Manifest:
        """Chooses and sorts files, given as (path, size).

        Args:
            files: in any order.
            pattern: of paths, as a shell's; "*" takes slashes in, too.
            checksums: path -> (size, CRC-32). A size that differs is a problem, and the file is taken in with its own.
            problems: that are there already.
        """
        known = checksums or {}
        found, wrong = [], list(problems)
        for path, size_bytes in files:
            if path == CHECKSUMS_PATH or not fnmatchcase(path, pattern):
                continue
            size, crc32 = known.get(path, (size_bytes, None))
            if size != size_bytes:
                wrong.append(f"{plain(path)}: has {size_bytes} bytes, and {size} by {CHECKSUMS_NAME}")
            found.append(Entry(path, size_bytes, crc32))
        there = {entry.path for entry in found}
        wrong += [
            f"{plain(path)}: is in {CHECKSUMS_NAME}, and is not there"
            for path in sorted(known)
            if path not in there and fnmatchcase(path, pattern)
        ]
        return cls(tuple(sorted(found, key=lambda entry: entry.path)), tuple(wrong))

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(entry.size_bytes for entry in self.entries)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with any path or size; what a run resumes from must have the same."""
        digest = hashlib.sha256()
        for entry in self.entries:
            digest.update(entry.path.encode("utf-8", "surrogateescape") + b"\0%d\0" % entry.size_bytes)
        return digest.hexdigest()[:32]


def checksums_text(entries: Iterable[Entry], **facts: str | int) -> str:
    """What stands in CHECKSUMS_NAME."""
    files = {entry.path: [entry.size_bytes, entry.crc32] for entry in entries}
    return json.dumps({"schema": _SCHEMA, "version": _VERSION, **facts, "files": files}, indent=0) + "\n"


def list_bytes(files: int, size_bytes: int, name: str) -> int:
    """How many bytes of a list to read: the size that it is said to have.

    Raises:
        ConfigError: where that is more than a list of so many files has.
    """
    most = min(_LIST_BYTES + _LIST_BYTES_OF_FILE * files, _LIST_BYTES_MOST)
    if size_bytes > most:
        raise ConfigError(
            f"{plain(name)}: has {size_bytes} bytes, and a list of {files} files has at most {most}; make it anew, or "
            "remove it"
        )
    return size_bytes


def parse_checksums(text: bytes, name: str) -> dict[str, tuple[int, int]]:
    """Path -> (size, CRC-32).

    Raises:
        ConfigError: where it is not what checksums_text() writes.
    """
    try:
        document = json.loads(text)
        if document["schema"] != _SCHEMA or document["version"] != _VERSION:
            raise ValueError(f"its schema is {document['schema']} {document['version']}")
        return {path: (_whole(size), _whole(crc32)) for path, (size, crc32) in document["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        why = plain((str(error) or "there is not the memory for it")[:_WHY_SIGNS])
        raise ConfigError(
            f"{plain(name)}: is no list of checksums of `flashmob files make` ({why}); make it anew, or remove it"
        ) from None


def _whole(number: object) -> int:
    """A size or a checksum; JSON can say infinity."""
    if type(number) is not int:
        raise ValueError(f"{number!r} is no whole number")
    return number
