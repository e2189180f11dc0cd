"""The kernel's own file reads, by some threads, and how plain files are opened whose folder others may change."""

from __future__ import annotations

import os
import queue
import stat
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flashmob.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# How long reads may take to end once nobody wants them: Ctrl-C must end it all.
_GIVE_UP_S = 1.0


class Ended(NamedTuple):
    """A read that has ended; `error` is one sentence without the file's name, empty if all is well."""

    tag: int
    error: str


class _Read(NamedTuple):
    tag: int
    path: str
    begin: int
    to: NDArray[np.uint8]


# What threads take reads from; None is the last.
_Asked = queue.SimpleQueue[_Read | None]


class PosixThreads:
    """Threads that read. The process never waits for them: one may hang in a file system that does not answer."""

    def __init__(self, root: Path, threads: int) -> None:
        if threads < 1:
            raise ConfigError(f"depth = {threads} is not possible: use 1 or more")
        self._root = root
        self._most = threads
        self._threads: list[threading.Thread] = []
        self._asked: _Asked = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        self._unfinished = 0
        # They know the queues alone, and so end with this as well where nobody closes it.
        self._end = weakref.finalize(self, self._asked.put, None)
        self._end.atexit = False

    def start(self, tag: int, path: str, begin: int, to: NDArray[np.uint8]) -> None:
        """Takes on a read of all of `to` from byte `begin` of a file on."""
        if not self._end.alive:
            raise RuntimeError("the reads are closed; open them again")
        if len(self._threads) < self._most:
            thread = threading.Thread(
                target=_work, args=(self._root, self._asked, self._ended), name="fm-files", daemon=True
            )
            thread.start()
            self._threads.append(thread)
        self._unfinished += 1
        self._asked.put(_Read(tag, path, begin, to))

    def wait(self) -> list[Ended]:
        """Waits until at least one read has ended; empty only where none is left."""
        if self._unfinished == 0:
            return []
        ended = [self._ended.get()]
        while not self._ended.empty():
            ended.append(self._ended.get())
        self._unfinished -= len(ended)
        return ended

    def close(self) -> None:
        """Gives up what has not begun, and waits a moment for the rest; what hangs keeps its memory, and ends alone."""
        while not self._asked.empty():
            self._asked.get()
        self._end()
        self._unfinished = 0
        until = time.monotonic() + _GIVE_UP_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


def _work(root: Path, asked: _Asked, ended: queue.SimpleQueue[Ended]) -> None:
    while True:
        read = asked.get()
        if read is None:
            # The next one's, too.
            asked.put(None)
            return
        error = "the read was given up"
        try:
            error = _read_all(root / read.path.lstrip("/"), read.begin, read.to.data)
        except OSError as failed:
            error = failed.strerror or str(failed)
        finally:
            ended.put(Ended(read.tag, error))
        # Its memory is the caller's, however long the next one takes to come.
        del read


def _read_all(path: Path, begin: int, to: memoryview) -> str:
    file = open_plain(path)
    try:
        while to:
            got = os.preadv(file, [to], begin)
            if got == 0:
                return f"it ends at byte {begin}; it has become shorter"
            begin += got
            to = to[got:]
        return ""
    finally:
        os.close(file)


def open_plain(path: Path, *, follows_links: bool = False) -> int:
    """A descriptor to read a plain file by.

    It waits for nobody: a pipe that has taken the file's place is open at once, and refused.

    Raises:
        OSError: also where it is no plain file.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follows_links else os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError("it is no plain file")
        # Some file systems would answer EAGAIN, else.
        os.set_blocking(file, True)
    except BaseException:
        os.close(file)
        raise
    return file


def read_at_most(path: Path, most: int) -> bytes:
    """What a plain file begins with; a link leads to it.

    Raises:
        OSError: also where it is no plain file.
    """
    with os.fdopen(open_plain(path, follows_links=True), "rb") as file:
        return file.read(most)
