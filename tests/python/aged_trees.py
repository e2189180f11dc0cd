"""File systems that have aged, for tests: trees made by seed, images of them, mounts, and what their own tools say.

Nothing here looks at the package: it is what the package is compared with.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FICLONE = 0x40049409
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


def tool(name: str) -> str | None:
    """Where a program is, also in the folders of administrators."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def run(*command: str | Path, stdin: str | None = None) -> str:
    """What a program prints; it must end well."""
    first = tool(str(command[0])) or str(command[0])
    done = subprocess.run([first, *map(str, command[1:])], input=stdin, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def make_tree(root: Path, seed: int, *, names: int = 400, hole_at_end: bool = False) -> None:
    """Files of all sizes, among them such as fit into an inode; sparse ones; links of all lengths; names that resemble
    each other, so many in a directory that it needs an index; an empty directory, and a deep one.

    What mke2fs -d copies has no hole at its end: it would make the file shorter.
    """
    rng = random.Random(seed)
    sizes = [0, 1, 59, 60, 61, 100, 140, 500, 1023, 1024, 4095, 4096, 4097, 10_000, 70_000]
    many = root / "many"
    many.mkdir()
    for number in range(names):
        (many / f"a-name-that-is-as-long-as-many-others-are-{number:06}.bin").write_bytes(rng.randbytes(number % 5))
    (root / "empty").mkdir()
    deep = root
    for level in range(12):
        deep /= f"level-{level}"
        deep.mkdir()
        (deep / "file").write_bytes(rng.randbytes(rng.choice(sizes)))
    files = root / "files"
    files.mkdir()
    for size in sizes:
        (files / f"of-{size}").write_bytes(rng.randbytes(size))
    (files / ("n" * 255)).write_bytes(b"the longest name")
    (files / "ümlaut \u2713").write_bytes(b"a name of several bytes a sign")
    with (files / "sparse").open("wb") as file:
        for piece in range(300):
            file.seek(piece * 12_288 + rng.randrange(3) * 4096)
            file.write(rng.randbytes(rng.choice([1, 4096, 5000])))
        if hole_at_end:
            file.truncate(300 * 12_288 + 4097)
    for length in (1, 59, 60, 61, 200, 335, 336, 500, 1000):
        (root / f"link-{length}").symlink_to("x" * length)
    (root / "to-file").symlink_to("files/of-4097")
    (root / "to-root").symlink_to("/files/of-61")
    (root / "circle").symlink_to("circle")
    (root / "second-name").hardlink_to(files / "of-70000")


def age(root: Path, seed: int, *, clones: bool) -> None:
    """Writes, punches, truncates, reserves and deletes by turns, in a mounted file system, so that files fall apart."""
    rng = random.Random(seed)
    folder = root / "aged"
    folder.mkdir()
    open_files = {name: (folder / f"f{name}").open("w+b", buffering=0) for name in range(12)}
    for _turn in range(1500):
        file = open_files[rng.randrange(len(open_files))]
        offset = rng.randrange(300) * 4096
        action = rng.random()
        if action < 0.62:
            os.pwrite(file.fileno(), rng.randbytes(rng.choice([100, 4096, 9000])), offset)
        elif action < 0.8:
            _fallocate(file.fileno(), _KEEP_SIZE | _PUNCH_HOLE, offset, rng.randrange(1, 9) * 4096)
        elif action < 0.92:
            _fallocate(file.fileno(), rng.choice([0, _KEEP_SIZE]), offset, rng.randrange(1, 9) * 4096)
        elif action < 0.95:
            file.truncate(rng.randrange(301 * 4096))
        elif clones:
            copy = folder / f"clone{rng.randrange(6)}"
            copy.unlink(missing_ok=True)
            with copy.open("wb") as to:
                fcntl.ioctl(to.fileno(), _FICLONE, file.fileno())
        if rng.random() < 0.1:
            os.fsync(file.fileno())
    for file in open_files.values():
        file.close()


def _fallocate(file: int, mode: int, offset: int, length: int) -> None:
    done = _libc.fallocate(file, mode, ctypes.c_int64(offset), ctypes.c_int64(length))
    if done != 0 and ctypes.get_errno() != errno.ENOSPC:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path | None]:
    """The image as a mounted file system; None where this machine does not let us."""
    folder.mkdir(exist_ok=True)
    mount = tool("mount")
    if os.geteuid() != 0 or mount is None:
        yield None
        return
    done = subprocess.run([mount, "-o", "loop", image, folder], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        yield None
        return
    try:
        yield folder
    finally:
        run("umount", folder)


def contents(root: Path) -> dict[str, bytes]:
    """Every regular file below, by its path from there."""
    return {
        f"/{path.relative_to(root)}": path.read_bytes()
        for path in root.rglob("*")
        if not path.is_symlink() and path.is_file()
    }


def debugfs_extents(image: Path, inodes: list[int], block_bytes: int) -> dict[int, list[tuple[int, int, int, bool]]]:
    """What debugfs says of files that have extent trees: (file offset, device offset, bytes, whether unwritten)."""
    asked = "".join(f"ex <{inode}>\n" for inode in inodes)
    said = run("debugfs", "-f", "-", image, stdin=asked)
    found: dict[int, list[tuple[int, int, int, bool]]] = {}
    current: list[tuple[int, int, int, bool]] = []
    for line in said.splitlines():
        if started := re.match(r"debugfs: ex <(\d+)>", line):
            current = found.setdefault(int(started[1]), [])
        leaf = re.match(
            r"\s*(\d+)/\s*(\d+)\s+\d+/\s*\d+\s+(\d+)\s+-\s+\d+\s+(\d+)\s+-\s+\d+\s+(\d+)(\s+Uninit)?\s*$", line
        )
        if leaf and leaf[1] == leaf[2]:
            first, place, count = (int(leaf[number]) * block_bytes for number in (3, 4, 5))
            current.append((first, place, count, leaf[6] is not None))
    return found


def xfs_db_extents(image: Path, inodes: list[int]) -> dict[int, list[tuple[int, int, int, bool]]]:
    """The same of XFS, from xfs_db."""
    head = run("xfs_db", "-r", "-c", "sb 0", "-c", "print blocksize agblocks agblklog", image)
    fields = {key: int(value) for key, value in re.findall(r"(\w+) = (\d+)", head)}
    commands = [line for inode in inodes for line in (f"echo inode {inode}", f"inode {inode}", "bmap -d")]
    said = run("xfs_db", "-r", *[part for command in commands for part in ("-c", command)], image)
    found: dict[int, list[tuple[int, int, int, bool]]] = {}
    current: list[tuple[int, int, int, bool]] = []
    for line in said.splitlines():
        if started := re.match(r"inode (\d+)", line):
            current = found.setdefault(int(started[1]), [])
        leaf = re.match(r"data offset (\d+) startblock (\d+) \((\d+)/(\d+)\) count (\d+) flag (\d)", line)
        if leaf:
            place = int(leaf[3]) * fields["agblocks"] + int(leaf[4])
            size = fields["blocksize"]
            current.append((int(leaf[1]) * size, place * size, int(leaf[5]) * size, leaf[6] == "1"))
    return found
