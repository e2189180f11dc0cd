"""I/O queue pairs and futures: what waits for an SSD waits here, and never for longer than it was told to.

Nothing blocks while a command is started: what the ring has no slot for waits in Python, and goes out as completions
come in. Waiting polls, because an in-process SSD has no interrupts; a wait in which nothing happens sleeps more and
more between two looks.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flashmob.buffers import BufferLike, held_buffer, whole
from flashmob.checks import checked_seconds
from flashmob.errors import NvmeError
from flashmob.pump import FATAL_CHECK_S, Pump, pause_s

if TYPE_CHECKING:
    from flashmob import _core
    from flashmob.ssd import Ssd

_LOG = logging.getLogger("flashmob")
# What fits one of the driver's slots. A larger request becomes several commands here, so that the driver, which cannot
# see Ctrl-C, never waits for a slot.
_SLOT_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace of a device. Sizes in bytes; one of command set "kv" has no blocks, and lba_bytes is 0."""

    nsid: int
    size_bytes: int
    lba_bytes: int
    command_set: str = "nvm"

    @property
    def blocks(self) -> int:
        """How many logical blocks it has; LBAs are 0 to blocks - 1."""
        return self.size_bytes // self.lba_bytes if self.lba_bytes else 0


class Future:
    """The outcome of one request. Completions arrive while its queue is polled: by result(), done() or `await`.

    In a coroutine `await queue.read(0, buffer)` waits without keeping the loop, and asyncio.gather() and
    asyncio.wait_for() take futures as they are. A cancelled wait leaves the command outstanding, as SSDs have no way
    back: leave the buffer alone until done() says True.
    """

    __slots__ = ("_callbacks", "_command", "_given_up", "_parts", "_queue", "_status")

    def __init__(self, queue: Queue, command: str, parts: int) -> None:
        self._queue = queue
        self._command = command
        self._parts = parts
        self._status = 0
        self._given_up = False
        self._callbacks: list[Callable[[Future], object]] = []

    def done(self) -> bool:
        """Whether the request has completed; polls the queue once if it had not. Never raises.

        What a closed queue has not completed is lost, and stays False.
        """
        if self._parts:
            # Closed, by this thread before or by another meanwhile; only result() says so.
            with suppress(RuntimeError):
                self._queue.poll()
        return self._parts == 0

    def result(self, timeout_s: float | None = None) -> None:
        """Waits until the request has completed.

        Args:
            timeout_s: how long at most, in seconds; by default as long as the Ssd's timeout_s says.

        Raises:
            NvmeError: if the device completed it with an error.
            TimeoutError: if it has not completed in time; it stays outstanding.
            ControllerFatalError: if the controller has died.
        """
        error = self.exception(timeout_s)
        if error is not None:
            raise error

    def exception(self, timeout_s: float | None = None) -> NvmeError | None:
        """Waits like result(), and returns what it would raise for the device's answer; None after success."""
        if self._parts:
            self._queue._wait(lambda: self._parts == 0, timeout_s, self._late)
        return NvmeError(self._status, self._command) if self._status else None

    def status(self) -> int | None:
        """The completion's status field, 0 for success; None while the request is outstanding. Does not poll."""
        return None if self._parts else self._status

    def add_done_callback(self, callback: Callable[[Future], object]) -> None:
        """Calls `callback(self)` when the request has completed: at once, or in the poll that finds it."""
        with self._queue._lock:
            if self._parts:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def __await__(self) -> Generator[Any, None, None]:
        if self._parts:
            yield from self._queue._in_loop(self).__await__()
        if self._status:
            raise NvmeError(self._status, self._command)

    def _complete(self, status: int) -> bool:
        """One of its commands has completed; whether that was the last."""
        self._status = status or self._status
        self._parts -= 1
        return self._parts == 0

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[Future], object]) -> None:
        try:
            callback(self)
        except Exception:
            # Whoever polls has nothing to do with it.
            _LOG.exception("a callback of %r failed", self)

    def _late(self, limit_s: float) -> str:
        self._given_up = True
        return f"{self._command} has not completed within {limit_s:g} s"

    def __repr__(self) -> str:
        state = "outstanding" if self._parts else f"status={self._status:#x}" if self._status else "done"
        return f"<Future {self._command}: {state}>"


@dataclass(slots=True)
class _Part:
    """One command of a request, before it has a slot."""

    future: Future
    start: Callable[[], int]


class Queue:
    """One I/O queue pair; made by Ssd.queue(). A context manager, or call close().

    Threads may share it, and any thread may wait for a future; with a queue each they do not wait for each other.
    """

    def __init__(self, ssd: Ssd, core: _core.Queue, depth: int) -> None:
        self._ssd = ssd
        self._open_core: _core.Queue | None = core
        self.depth = depth
        self._outstanding: dict[int, Future] = {}
        self._unsent: deque[_Part] = deque()
        self._pump: Pump | None = None
        # Held while the rings are used, but not while callbacks run.
        self._lock = threading.RLock()
        self._slot_bytes = min(_SLOT_BYTES, ssd.profile.controller.max_transfer_bytes)

    def read(self, lba: int, buffer: BufferLike, *, namespace: Namespace | int | None = None) -> Future:
        """Starts a read of the blocks at `lba` into all of `buffer`. Never blocks.

        Args:
            lba: the first logical block.
            buffer: writable contiguous memory (buffer protocol, or DLPack on the CPU), a multiple of the LBA size;
                kept alive until the request is done.
            namespace: which one, or its NSID; by default the device's first.

        Raises:
            TypeError, ValueError: if the buffer cannot be read into.
        """
        target = self._ssd._namespace(namespace)
        return self._start("read", lba, held_buffer(buffer, target, writable=True), target)

    def write(self, lba: int, buffer: BufferLike, *, namespace: Namespace | int | None = None) -> Future:
        """Starts a write of all of `buffer` to the blocks at `lba`; leave it alone until it is done. See read()."""
        target = self._ssd._namespace(namespace)
        return self._start("write", lba, held_buffer(buffer, target, writable=False), target)

    def flush(self, *, namespace: Namespace | int | None = None) -> Future:
        """Starts a flush: what was completed before it is on the medium once it is done."""
        nsid = self._ssd._namespace(namespace).nsid
        future = Future(self, f"flush of namespace {nsid}", 1)
        with self._lock:
            core = self._native
            self._unsent.append(_Part(future, lambda: core.flush(nsid)))
            self._send()
        return future

    def poll(self) -> int:
        """Takes in completions; returns how many requests they completed."""
        return self._take_in()[1]

    def outstanding(self) -> int:
        """Requests that have not completed."""
        return len(self._pending())

    def drain(self, timeout_s: float | None = None) -> None:
        """Waits until nothing is outstanding. Errors stay with their futures.

        Args:
            timeout_s: how long at most, in seconds; by default until nothing has completed for the Ssd's timeout_s.

        Raises:
            TimeoutError: if requests are outstanding after that.
            ControllerFatalError: if the controller has died.
        """
        self._wait(
            lambda: not self._outstanding and not self._unsent,
            timeout_s,
            lambda limit_s: f"{self.outstanding()} requests have not completed within {limit_s:g} s",
            renewed=timeout_s is None,
        )

    def close(self) -> None:
        """Waits for what is outstanding, as drain() does, then deletes the queue; what has not completed is lost.

        What was waited for in vain before is not waited for again, and what faults have lost not at all. Idempotent;
        never raises.
        """
        if self._open_core is None:
            return
        try:
            self._wait(lambda: not self._worth_waiting(), None, lambda _: "", renewed=True)
        except (OSError, RuntimeError):
            pass  # Lost, or the controller is dead: the futures say so.
        finally:
            self._abandon()

    def _abandon(self) -> None:
        with self._lock:
            core, self._open_core = self._open_core, None
            if core is not None:
                core.abandon()
            self._unsent.clear()

    def _worth_waiting(self) -> bool:
        return any(not future._given_up for future in self._pending()) and not self._ssd._only_lost_left()

    def _pending(self) -> set[Future]:
        with self._lock:
            return {*self._outstanding.values(), *(part.future for part in self._unsent)}

    @property
    def _native(self) -> _core.Queue:
        if self._open_core is None:
            raise RuntimeError("the queue is closed" if self._ssd._open_core else "the SSD is closed")
        return self._open_core

    def _start(self, kind: Literal["read", "write"], lba: int, held: _core.HeldBuffer, target: Namespace) -> Future:
        first = whole("lba", lba)
        if not 0 <= first < 1 << 64:
            raise ValueError(f"lba = {lba} is not possible: use 0 to {target.blocks - 1}")
        command = f"{'read of' if kind == 'read' else 'write to'} namespace {target.nsid} at LBA {first}"
        nsid, lba_bytes, all_bytes, step = target.nsid, target.lba_bytes, held.nbytes, self._slot_bytes
        with self._lock:
            # Under the lock, because a queue that is given up goes with its rings.
            start = self._native.read if kind == "read" else self._native.write
            if all_bytes <= step and not self._unsent and len(self._outstanding) < self.depth:
                future = Future(self, command, 1)
                self._outstanding[start(nsid, first, held, 0, all_bytes)] = future
                return future
            future = Future(self, command, -(-all_bytes // step))
            for at in range(0, all_bytes, step):
                there, count = first + at // lba_bytes, min(step, all_bytes - at)

                def one(there: int = there, at: int = at, count: int = count) -> int:
                    return start(nsid, there, held, at, count)

                self._unsent.append(_Part(future, one))
            self._send()
        self._take_in()
        return future

    def _send(self) -> None:
        while self._unsent and len(self._outstanding) < self.depth:
            part = self._unsent.popleft()
            self._outstanding[part.start()] = part.future

    def _take_in(self) -> tuple[int, int]:
        """Commands that have completed, and requests that this completed."""
        with self._lock:
            completed = self._native.poll()
            futures = [(self._outstanding.pop(token), status) for token, status in completed]
            done = [future for future, status in futures if future._complete(status)]
            self._send()
        for future in done:
            future._call_back()
        return len(completed), len(done)

    def _wait(
        self,
        ready: Callable[[], bool],
        timeout_s: float | None,
        late: Callable[[float], str],
        *,
        renewed: bool = False,
    ) -> None:
        """Polls until ready(); `renewed` counts the time from the last completion."""
        limit_s = (
            self._ssd.timeout_s if timeout_s is None else checked_seconds("timeout_s", timeout_s, may_be_zero=True)
        )
        begun = last = checked = time.monotonic()
        while not ready():
            commands, _ = self._take_in()
            now = time.monotonic()
            if commands:
                last = now
                continue
            if now - (last if renewed else begun) >= limit_s:
                raise TimeoutError(late(limit_s) + self._ssd._faults_hint())
            if now - checked >= FATAL_CHECK_S:
                checked = now
                self._ssd._require_alive()
            idle = now - last
            # Even a sleep of 0 lets the device's threads run where cores are scarce, and signals be handled.
            time.sleep(pause_s(idle))

    async def _in_loop(self, future: Future) -> None:
        loop = asyncio.get_running_loop()
        if self._pump is None or self._pump.loop is not loop:
            self._pump = Pump(self, loop)
        pump = self._pump
        waiter = pump.wait_for(future)
        limit_s = self._ssd.timeout_s
        timer = None
        if limit_s != math.inf:
            timer = loop.call_later(limit_s, self._expire, future, waiter, limit_s)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            pump.forget(waiter)

    def _expire(self, future: Future, waiter: asyncio.Future[None], limit_s: float) -> None:
        if not waiter.done():
            waiter.set_exception(TimeoutError(future._late(limit_s) + self._ssd._faults_hint()))

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._open_core is None else f"outstanding={self.outstanding()}"
        return f"<Queue depth={self.depth} {state}>"
