"""Measurements in processes of their own, several at a time: for runs in virtual time, which nobody beside disturbs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, TypeAlias

from flashmob.runner import CtrlC
from flashmob.study.points import Settings

Measure: TypeAlias = Callable[[Settings], dict[str, Any]]
# How long the end of the pool is waited for once its workers are ended.
_POOL_END_S = 2.0
_LOOK_S = 0.25


class StoppedError(Exception):
    """A measurement was stopped half-way, and what it found so far is not to be kept."""


def side_by_side(
    measure: Measure, given: Mapping[int, Settings], workers: int
) -> Generator[tuple[int, dict[str, Any]], None, None]:
    """Measures what is given, `workers` at a time, and hands out what was found as it comes, by its place.

    `measure` is found by its name in each process. What it raises ends all.

    Raises:
        StoppedError: after Ctrl-C, or where a measurement was stopped; all others are ended.
    """
    with (
        CtrlC() as ctrl_c,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_ignore_ctrl_c) as pool,
    ):
        before = set(threading.enumerate())
        with _ctrl_c_waits():
            pending: dict[Future[dict[str, Any]], int] = {
                pool.submit(measure, settings): place for place, settings in given.items()
            }
        try:
            while pending:
                if ctrl_c.pressed:
                    raise StoppedError
                done = wait(pending, timeout=_LOOK_S, return_when=FIRST_COMPLETED).done
                # What was found before something failed is kept.
                for future in sorted(done, key=lambda one: one.exception() is not None):
                    yield pending.pop(future), future.result()
        finally:
            if pending:
                pool.shutdown(wait=False, cancel_futures=True)
                for child in active_children():
                    child.terminate()
                # The pool's own hold its semaphores; one that waits for what a worker had half said is left behind.
                for thread in set(threading.enumerate()) - before:
                    thread.join(_POOL_END_S)


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Workers that start meanwhile inherit it: they could not ignore Ctrl-C before their interpreter is there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ignore_ctrl_c() -> None:
    """Ctrl-C is for the process that started this one; it ends us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
