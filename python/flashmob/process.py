"""A process that runs until it is told to stop, and says when it is ready."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, TypeVar

from flashmob.errors import EXIT_INTERRUPTED

T = TypeVar("T")

_DESCRIPTORS = 16_384


# How long leaving may take.
STOP_S = 1.8


def interruptible(work: Callable[[], T]) -> T:
    """What `work` returns or raises; done in a thread, so that Ctrl-C is heard while the compiled module computes.

    After Ctrl-C the thread is left behind: the command line then ends the process without it.
    """
    outcome: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # Handed to the thread that waits.
            raised.append(error)

    thread = threading.Thread(target=run, name="flashmob-work", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)  # Without a limit it may hold up Ctrl-C.
    if raised:
        raise raised[0]
    return outcome[0]


def say(text: str) -> None:
    """Writes a short text to standard error, unless that would have to be waited for: it may be a pipe that is full."""
    try:
        handle = sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):  # A test's, a notebook's, or none at all.
        with suppress(OSError, AttributeError):
            sys.stderr.write(text)
            sys.stderr.flush()
        return
    if takes_more(handle):
        with suppress(OSError):
            os.write(handle, text.encode(errors="backslashreplace"))


def takes_more(handle: int) -> bool:
    """Whether a descriptor takes some bytes at once, or an error."""
    room = select.poll()
    room.register(handle, select.POLLOUT)
    return bool(room.poll(0))


class StopSignals:
    """SIGINT, SIGTERM and SIGHUP as something to wait for; a second one has its usual effect. nohup's is left alone.

    Whatever the main thread hangs on, the process ends `STOP_S` after the first, and at once after a second SIGTERM.

    A handler runs between two steps of the main thread, which may just then hold a lock of threading.Event: setting
    one from there can wait for ever. A pipe has no such lock.
    """

    def __init__(self) -> None:
        self.number = 0
        self._read, self._write = -1, -1
        self._before: dict[signal.Signals, Any] = {}
        self._seen_read, self._seen_write, self._wakeup_before = -1, -1, -1
        self._enforcer: threading.Thread | None = None
        self._deadline_s: float | None = None

    def __enter__(self) -> StopSignals:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # Only the main thread may have handlers; elsewhere stop() alone ends the wait.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue
                self._before[number] = signal.signal(number, self._note)
            # Python's own C handler writes there, also while the main thread is in a call that does not return.
            self._seen_read, self._seen_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._wakeup_before = signal.set_wakeup_fd(self._seen_write, warn_on_full_buffer=False)
            self._enforcer = threading.Thread(target=self._enforce, name="stop", daemon=True)
            self._enforcer.start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._enforcer is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            os.write(self._seen_write, b"\0")
            self._enforcer.join()
            os.close(self._seen_read)
            os.close(self._seen_write)
        os.close(self._read)
        os.close(self._write)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number
        signal.signal(number, self._before[signal.Signals(number)])
        self.stop()

    def _enforce(self) -> None:
        """Ends the process if it does not end itself; returns where it leaves the `with` block."""
        while True:
            left_s = None if self._deadline_s is None else self.left_s()
            if not select.select([self._seen_read], [], [], left_s)[0]:
                say("flashmob: something holds up the end of the process: it ends without it\n")
                os._exit(1)
            for number in os.read(self._seen_read, 64):
                if number == 0:
                    return
                if number == signal.SIGTERM and self._deadline_s is not None:
                    os._exit(128 + number)
                if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) and self._deadline_s is None:
                    self._deadline_s = time.monotonic() + STOP_S

    def left_s(self) -> float:
        """What is left of the time that leaving may take, s."""
        return STOP_S if self._deadline_s is None else max(0.0, self._deadline_s - time.monotonic())

    def stop(self) -> None:
        """Ends the wait as a signal would."""
        with suppress(BlockingIOError):
            os.write(self._write, b"x")

    def wait(self, timeout_s: float) -> bool:
        """Waits for a signal, at most so long, s; whether there was one."""
        return bool(select.select([self._read], [], [], timeout_s)[0])

    @property
    def exit_code(self) -> int:
        """What the process should end with: 130 after Ctrl-C, 0 where it was asked to stop by SIGTERM."""
        return EXIT_INTERRUPTED if self.number == signal.SIGINT else 0


def raise_descriptor_limit() -> None:
    """Has this process open as many files as it may, within reason: each connection of a host is one.

    The usual limit of 1,024 is for programs that call select(); nothing here does.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _DESCRIPTORS)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def notify_systemd(state: str) -> None:
    """sd_notify(3): one datagram to the socket that systemd names, if it started us."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.sendto(state.encode(), "\0" + path[1:] if path.startswith("@") else path)
    except OSError:
        pass  # Whoever set the variable does not listen; serving goes on.
