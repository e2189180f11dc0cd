"""A file system of one folder whose files answer reads as their names say: python strange_fs.py MOUNTPOINT NAME...

`hang` does when it is interrupted, `deaf` never does, `eagain` and `eintr` do with nothing else, all others with their
bytes. It prints a line when it is mounted, and ends when its standard input does. FUSE's messages are those of
linux/fuse.h; it needs the right to mount.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen

BYTES = 10_000
LOOKUP, GETATTR, OPEN, READ, OPENDIR, READDIR, INIT = 1, 3, 14, 15, 27, 28, 26
INTERRUPT = 36
# Of these nobody awaits an answer: FORGET, BATCH_FORGET.
UNANSWERED = (2, 42)
DIRECT_IO = 1
DETACH = 2


def content(name: str) -> bytes:
    return (name.encode() * BYTES)[:BYTES]


def _attributes(node: int) -> bytes:
    mode, size = (0o40755, 0) if node == 1 else (0o100644, BYTES)
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, 20, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _answer(operation: int, node: int, body: bytes, names: list[str]) -> bytes | int:
    """The answer, or an error's number; -1 is none at all."""
    if operation == INIT:
        return struct.pack("<IIIIHHIIHH28x", 7, 31, 1 << 20, 0, 16, 12, 1 << 20, 1, 256, 0)
    if operation == LOOKUP:
        name = body[:-1].decode()
        if name not in names:
            return errno.ENOENT
        number = names.index(name) + 2
        return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + _attributes(number)
    if operation == GETATTR:
        return struct.pack("<QII", 0, 0, 0) + _attributes(node)
    if operation in (OPEN, OPENDIR):
        return struct.pack("<QII", 0, DIRECT_IO, 0)
    offset, size = struct.unpack_from("<8xQI", body) if operation in (READ, READDIR) else (0, 0)
    if operation == READDIR:
        entries = b""
        for at, name in enumerate(names[offset:], offset):
            entry = struct.pack("<QQII", at + 2, at + 1, len(name), 8) + name.encode()
            entries += entry.ljust(-(-len(entry) // 8) * 8, b"\0")
        return entries
    if operation == READ:
        name = names[node - 2]
        wrong = {"hang": -1, "deaf": -1, "eagain": errno.EAGAIN, "eintr": errno.EINTR}
        return wrong.get(name, content(name)[offset : offset + size])
    return b"" if operation in (18, 25, 29) else errno.ENOSYS


def main(mount_point: str, *names: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40755,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"strange", os.fsencode(mount_point), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    print("mounted", flush=True)

    def wait_for_the_end() -> None:
        sys.stdin.read()
        libc.umount2(os.fsencode(mount_point), DETACH)
        os._exit(0)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    hanging: set[int] = set()
    while True:
        message = os.read(device, 1 << 21)
        length, operation, unique, node = struct.unpack_from("<IIQQ", message)
        answer = -1 if operation in UNANSWERED else _answer(operation, node, message[40:length], list(names))
        if operation == READ and names[node - 2] == "hang":
            hanging.add(unique)
        if operation == INTERRUPT:
            # Whoever waits cannot even be killed before it has its answer.
            (unique,) = struct.unpack_from("<Q", message, 40)
            answer = errno.EINTR if unique in hanging else -1
        if answer != -1:
            error, data = (-answer, b"") if isinstance(answer, int) else (0, answer)
            # Whoever asked may be gone.
            with suppress(OSError):
                os.write(device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)


@contextmanager
def strange_fs(mount_point: Path, *names: str) -> Iterator[bool]:
    """Whether it is mounted: this machine may not let us."""
    mount_point.mkdir()
    command = [sys.executable, __file__, str(mount_point), *names]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline() == "mounted\n"
        finally:
            process.stdin.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
