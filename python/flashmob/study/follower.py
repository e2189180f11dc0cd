"""Something that is read now and then while a measurement runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from flashmob.study.window import Window


class Follower:
    """Readings of something while a measurement runs, in a thread of its own, one at each end besides.

    `read_now` returns a tuple of figures, or raises OSError or ValueError: that reading is then left out.
    """

    def __init__(self, name: str, read_now: Callable[[], tuple[float, ...]], every_s: float) -> None:
        self._name, self._read_now, self._every_s = name, read_now, every_s
        self.readings: list[tuple[int, tuple[float, ...]]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins anew."""
        self.readings = []
        self._stop.clear()
        self._look()
        self._thread = threading.Thread(target=self._follow, name=f"flashmob-{self._name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends, with a last reading."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        self._look()

    def _follow(self) -> None:
        while not self._stop.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        # What takes long to answer says what was so in between.
        before_ns = time.monotonic_ns()
        try:
            values = self._read_now()
        except (OSError, ValueError):
            return
        self.readings.append(((before_ns + time.monotonic_ns()) // 2, values))


class Followed:
    """A meter that is read by a follower, unless `absent` says why it measures nothing here."""

    absent = ""
    follower: Follower

    def __enter__(self) -> Self:
        if not self.absent:
            self.follower.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.absent:
            self.follower.stop()

    def window_of(self, result: Mapping[str, Any]) -> Window | str:
        """The measured window of a result; or why there is nothing to be said of it."""
        window = Window.of(result)
        if self.absent or window is None or window.seconds <= 0:
            return self.absent or "the result has no measured window"
        return window
