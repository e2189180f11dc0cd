"""How often what waits for an SSD looks for completions, and the looking itself where an event loop waits."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashmob.queues import Future, Queue

# A wait spins this long after the last completion before it sleeps, and then sleeps an eighth of the time for which
# nothing has come, within these bounds.
_SPIN_S = 500e-6
_SHORTEST_SLEEP_S = 50e-6
_LONGEST_SLEEP_S = 10e-3
# An idle wait looks this often whether the controller has died.
FATAL_CHECK_S = 20e-3


def pause_s(idle_s: float) -> float:
    """How long to sleep between two looks when nothing has come for so long; 0 while it is better to spin."""
    return 0 if idle_s < _SPIN_S else min(max(idle_s / 8, _SHORTEST_SLEEP_S), _LONGEST_SLEEP_S)


class Pump:
    """Polls one queue from an event loop as long as a coroutine waits for it: often at first, then less and less."""

    def __init__(self, queue: Queue, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._thread = threading.get_ident()
        self._queue = queue
        self._waiters: set[asyncio.Future[None]] = set()
        self._armed = False
        self._last = self._checked = 0.0

    def wait_for(self, future: Future) -> asyncio.Future[None]:
        """What the loop waits on until the future is done."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.add(waiter)
        future.add_done_callback(lambda _: self._wake(waiter))
        # Somebody who waits anew expects an answer soon.
        self._last = self._checked = self.loop.time()
        if not self._armed:
            self._armed = True
            self.loop.call_soon(self._look)
        return waiter

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """Nobody waits on it any more."""
        self._waiters.discard(waiter)

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        if threading.get_ident() == self._thread:
            _set(waiter)
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(_set, waiter)

    def _look(self) -> None:
        self._armed = False
        try:
            commands, _ = self._queue._take_in()
            now = self.loop.time()
            if not commands and now - self._checked >= FATAL_CHECK_S:
                self._checked = now
                self._queue._ssd._require_alive()
        except Exception as error:  # Closed, or the controller is dead: whoever waits is told.
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_exception(error)
            return
        if all(waiter.done() for waiter in self._waiters):
            return
        self._armed = True
        if commands:
            self._last = now
        idle = now - self._last
        if pause := pause_s(idle):
            self.loop.call_later(pause, self._look)
        else:
            self.loop.call_soon(self._look)


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
