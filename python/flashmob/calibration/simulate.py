"""Runs loads on a device in virtual time, several at once, each once."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from flashmob.calibration.points import Figures, Load, Point
from flashmob.profiles import load_profile

Settings = Mapping[str, Any]

# A store of so much has superblocks enough to collect garbage like the drive; reads need no more than their places.
_STORE_BYTES, _READ_STORE_BYTES = 16 << 30, 4 << 30
_LEAST_IOS, _MOST_IOS = 4_000, 60_000
# Rounds of all that is in flight: enough for a mean of what is at its rate.
_ROUNDS = 24
# Writes are measured by time, when the buffer has been full for some of it.
_WRITE_RAMP_NS, _WRITE_RUNTIME_NS = 30_000_000, 60_000_000


def options(load: Load, store_bytes: int) -> dict[str, Any]:
    """Keyword arguments of flashmob.bench() that run a load."""
    length: dict[str, Any] = {"ios": min(max(_LEAST_IOS, load.in_flight * _ROUNDS), _MOST_IOS)}
    if load.read_share < 1:
        length = {"ramp_ns": _WRITE_RAMP_NS, "runtime_ns": _WRITE_RUNTIME_NS}
    return {
        "rw": load.rw,
        "bs": load.bs_bytes,
        "qd": load.depth,
        "queues": load.queues,
        "size": store_bytes,
        "clock": "virtual",
        "move_data": False,
        **length,
        **({"read_share": load.read_share} if load.rw in ("rw", "randrw") else {}),
        **({"precondition": "steady"} if load.is_steady else {}),
    }


def run_load(profile: str, settings: dict[str, Any], load: Load) -> dict[str, Figures]:
    """The figures of reads and of writes; a direction without requests is missing."""
    from flashmob.runner import bench

    device = load_profile(profile, settings)
    store_bytes = min(
        device.subsystem.namespaces[0].size_bytes, _READ_STORE_BYTES if load.read_share == 1 else _STORE_BYTES
    )
    if load.is_steady and device.timing.model != "nand":
        load = Load(load.rw, load.bs_bytes, load.depth, load.queues, load.read_share)
    result = bench(device, **options(load, store_bytes))
    found = {}
    for name, direction in (("read", result.read), ("write", result.write)):
        if direction is not None and direction.ios:
            latency = direction.latency_ns
            found[name] = Figures(direction.iops, latency.mean, latency.p50, latency.p99)
    return found


def _ignore_ctrl_c() -> None:
    """Ctrl-C is for the process that started this one; it ends us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Simulator:
    """Runs loads on changes of one profile. What ran once is remembered. Use it in a with statement."""

    def __init__(self, profile: str | Path, jobs: int | None = None) -> None:
        self.profile = str(profile)
        self.runs = 0
        self._known: dict[tuple[str, Load], dict[str, Figures]] = {}
        self._pool = ProcessPoolExecutor(
            jobs or len(os.sched_getaffinity(0)), mp_context=get_context("spawn"), initializer=_ignore_ctrl_c
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._pool.shutdown(wait=kind is None, cancel_futures=True)
        if kind is not None:
            for child in active_children():
                child.terminate()

    def figures(self, settings: Settings, points: Sequence[Point]) -> list[Figures]:
        """What the device does under each point's load, in their order.

        Raises:
            ConfigError: if there is no such device.
        """
        text = repr(sorted(settings.items()))
        load_profile(self.profile, settings)  # What is wrong with it is said here, not by each worker.
        todo = {point.load for point in points if (text, point.load) not in self._known}
        # Long ones first, so that none is waited for alone.
        ordered = sorted(todo, key=lambda load: -load.in_flight)
        futures = {load: self._pool.submit(run_load, self.profile, dict(settings), load) for load in ordered}
        for load, future in futures.items():
            self._known[text, load] = future.result()
        self.runs += len(futures)
        return [self._known[text, point.load].get(point.direction, Figures()) for point in points]
