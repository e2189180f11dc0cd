"""A process that runs until it is told to stop, and says when it is ready."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_signals(stopping: threading.Event) -> Iterator[threading.Event]:
    """SIGINT and SIGTERM set the event; a second one has its usual effect."""
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, _frame: object) -> None:
        stopping.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
