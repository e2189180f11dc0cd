"""The JSON log of served SSDs: a file, a pipe or standard output, none of which may hold up those who serve."""

from __future__ import annotations

import errno
import json
import os
import select
import stat
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from flashmob.errors import ConfigError
from flashmob.process import STOP_S, say, takes_more

# Lines that wait for a slow disk or reader, together; what comes beyond it is left out. Many intervals of many SSDs.
_MOST_WAITING_BYTES = 4 << 20
# How long the end of the process waits for lines as long as they get out, and for a reader that takes none meanwhile.
_LAST_LINES_S = 10.0
_READER_S = 0.5
_LOOK_S = 0.1


class JsonLog:
    """A file of JSON records, one a line, each written at once; "-" is standard output.

    A thread of its own writes: a pipe whose reader stands still, or a disk that hangs, would otherwise keep the loop
    that looks at the SSDs from looking. What finds no room meanwhile is left out, and that is said once.
    """

    def __init__(self, path: str, stdout: TextIO | None) -> None:
        """Opens the file for appending. `stdout` is None where that was closed before the process began.

        Raises:
            ConfigError: if it cannot.
        """
        if path == "-" and stdout is None:
            raise ConfigError("JSON log - is standard output, and that is closed; leave it open, or name a file")
        self._stdout = stdout if path == "-" else None
        self._handle = _open(path) if self._stdout is None else _standard_output(self._stdout)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        # How much has got out since the start; a reader that reads, however slowly, makes it grow.
        self._out_bytes = 0
        self._change = threading.Condition()
        self._busy = self._closing = self._said = False
        self._is_file, self._torn = (False, False) if self._handle is None else _state_of(self._handle)
        self._reader_left: BrokenPipeError | None = None
        self._thread = threading.Thread(target=self._run, name="flashmob-json-log", daemon=True)
        self._thread.start()

    def write(self, event: str, **values: Any) -> None:
        """Appends one record: time, event, and the values; returns before it is in the file.

        A full disk and a reader that stands still cost records, not the hosts their SSD: it is said once on standard
        error. A reader of standard output that has left ends the process as usual.
        """
        record = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **values}
        line = (json.dumps(record, separators=(",", ":")) + "\n").encode()
        with self._change:
            if self._reader_left is not None:
                raise self._reader_left
            fits = self._waiting_bytes + len(line) <= _MOST_WAITING_BYTES
            if fits:
                self._waiting.append(line)
                self._waiting_bytes += len(line)
                self._change.notify_all()
        if not fits:
            self._say("whoever reads it, or its disk, does not keep up")

    def flush(self, timeout_s: float) -> bool:
        """Waits until all lines are written, at most so long; whether they are."""
        with self._change:
            return self._change.wait_for(lambda: not self._waiting and not self._busy, timeout_s)

    def close(self, patience_s: float = STOP_S) -> None:
        """Writes what is left, if that is soon done, and closes the file; standard output stays open.

        `patience_s`: how long at most nothing may get out. A disk has all of it, a reader half a second of it; as long
        as something gets out, the last lines have ten seconds.
        """
        done = self._drain(patience_s)
        with self._change:
            self._closing = True
            self._change.notify_all()
        # A thread that hangs in a write or a close is left behind with its file; the end of the process takes both.
        if done:
            self._thread.join(max(_LOOK_S, patience_s))
        else:
            self._say("whoever reads it, or its disk, did not take the last lines")

    def _drain(self, patience_s: float) -> bool:
        """Waits for the last lines as long as that is of use: a machine may be slow, a reader may stand still."""
        until_s = time.monotonic() + _LAST_LINES_S
        reader = None if self._is_file else self._handle
        in_vain_s = patience_s if reader is None else min(patience_s, _READER_S)
        looks_in_vain, out_bytes = 0, self._out_bytes
        while not self.flush(_LOOK_S):
            # Counted, not timed: where the whole process is held up, nobody had a chance to read. One that reads slowly
            # finds the pipe filled again at once: what got out shows it, and that there is no room does not.
            stands_still = self._out_bytes == out_bytes and (reader is None or not takes_more(reader))
            looks_in_vain, out_bytes = looks_in_vain + 1 if stands_still else 0, self._out_bytes
            if (looks_in_vain and looks_in_vain * _LOOK_S >= in_vain_s) or time.monotonic() >= until_s:
                return False
        return True

    def _run(self) -> None:
        while True:
            with self._change:
                self._busy = False
                self._change.notify_all()
                self._change.wait_for(lambda: self._waiting or self._closing)
                if self._closing:
                    break
                line = self._waiting.popleft()
                self._waiting_bytes -= len(line)
                self._busy = True
            try:
                self._put(line)
            except BrokenPipeError as error:
                # Nobody but its reader wants standard output; a pipe with a name may get another reader.
                if self._stdout is not None:
                    self._reader_left = error
                self._say("nobody reads it")
            except (OSError, ValueError) as error:
                self._say(getattr(error, "strerror", None) or str(error))
        # Here, because a close may hang as a write may.
        if self._stdout is None and self._handle is not None:
            with suppress(OSError):  # What could not be written before cannot be now.
                os.close(self._handle)

    def _put(self, line: bytes) -> None:
        if self._handle is None:
            assert self._stdout is not None
            self._stdout.write(line.decode())
            self._stdout.flush()
            self._out_bytes += len(line)
            return
        # Half a line that a full disk has left must not spoil the next one.
        rest = memoryview(b"\n" + line if self._torn else line)
        # A pipe takes a long line piece by piece, so that one sees its reader read.
        most = len(rest) if self._is_file else select.PIPE_BUF
        while rest:
            try:
                written = os.write(self._handle, rest[:most])
            except BlockingIOError:  # Standard output is as whoever started us has made it.
                waiting = select.poll()
                waiting.register(self._handle, select.POLLOUT)
                waiting.poll()
                continue
            self._out_bytes += written
            self._torn = written < len(rest)
            rest = rest[written:]

    def _say(self, why: str) -> None:
        """Once, and not where the process is about to end because its reader has left."""
        with self._change:
            said, self._said = self._said, True
        if not said and self._reader_left is None:
            say(f"note: records are missing from the JSON log: {why}\n")


def _open(path: str) -> int:
    """The file's descriptor. A pipe without a reader is refused: opening it would wait for one, without a word."""
    file = Path(path).expanduser()
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    try:
        handle = os.open(file, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO and _is_pipe(file):
            raise ConfigError(
                f"JSON log {path} is a pipe that nobody reads; start its reader first, or name a file"
            ) from None
        raise ConfigError(
            f"JSON log {path} cannot be written: {error.strerror}; use a folder that exists and is yours"
        ) from None
    os.set_blocking(handle, True)  # From here on it is the thread that waits.
    return handle


def _state_of(handle: int) -> tuple[bool, bool]:
    """Whether it is a regular file, and whether that ends in half a line, of a run that was killed."""
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        return False, False
    try:
        with Path(f"/proc/self/fd/{handle}").open("rb") as file:
            file.seek(max(0, found.st_size - 1))
            return True, file.read(1) not in (b"", b"\n")
    except OSError:  # One that may be written but not read.
        return True, False


def _is_pipe(file: Path) -> bool:
    try:
        return stat.S_ISFIFO(file.stat().st_mode)
    except OSError:
        return False


def _standard_output(stdout: TextIO) -> int | None:
    """Its descriptor: the interpreter cannot end while a thread hangs in its buffer. None where it has none."""
    try:
        handle = stdout.fileno()
        stdout.flush()
    except (OSError, ValueError):  # A test's, or a notebook's.
        return None
    return handle
