"""What was measured of a drive: one point is one load and what it came to."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Direction = Literal["read", "write"]

LOADS = ("read", "write", "randread", "randwrite", "rw", "randrw")


@dataclass(frozen=True, slots=True, order=True)
class Load:
    """A closed loop: what is asked of the drive, and how much of it at once.

    Attributes:
        rw: one of LOADS.
        bs_bytes: bytes of each request.
        depth: commands in flight of each queue.
        queues: jobs, each with a queue of its own.
        read_share: 1 or 0, or what rw and randrw mix.
        is_steady: the drive was overwritten at random until its rate no longer changed.
    """

    rw: str
    bs_bytes: int
    depth: int
    queues: int
    read_share: float
    is_steady: bool = False

    @property
    def in_flight(self) -> int:
        """Commands in flight of all queues."""
        return self.depth * self.queues

    def __str__(self) -> str:
        size = f"{self.bs_bytes >> 10}k" if self.bs_bytes % 1024 == 0 else f"{self.bs_bytes}"
        share = f" {self.read_share:.0%} reads" if self.rw in ("rw", "randrw") else ""
        jobs = f" x {self.queues}" if self.queues > 1 else ""
        return f"{self.rw}{share} {size}, depth {self.depth}{jobs}"


@dataclass(frozen=True, slots=True)
class Figures:
    """What a load comes to, of one direction. What was not measured is None.

    Attributes:
        iops: requests a second.
        mean_ns, p50_ns, p99_ns: of their latencies.
    """

    iops: float | None = None
    mean_ns: float | None = None
    p50_ns: float | None = None
    p99_ns: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """A load, the direction that was looked at, and what was measured; `runs` rows say the same of it."""

    load: Load
    direction: Direction
    measured: Figures
    runs: int = 1

    @property
    def key(self) -> tuple[Load, str]:
        """What makes it this point and no other."""
        return self.load, self.direction

    def __str__(self) -> str:
        mixed = f" ({self.direction}s)" if self.load.rw in ("rw", "randrw") else ""
        return f"{self.load}{mixed}"


@dataclass(slots=True)
class Found:
    """What sources hold: points, and rows that are none, counted by the reason."""

    points: list[Point] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, why: str) -> None:
        """Counts a row that is no point."""
        self.left_out[why] = self.left_out.get(why, 0) + 1


def joined(points: Iterable[Point]) -> list[Point]:
    """One point of each load: the medians of those that repeat it, in the order of the loads."""
    groups: dict[tuple[Load, str], list[Point]] = {}
    for point in points:
        groups.setdefault(point.key, []).append(point)
    return [_median(groups[key]) for key in sorted(groups)]


def _median(points: Sequence[Point]) -> Point:
    if len(points) == 1:
        return points[0]

    def of(name: str) -> float | None:
        values = [value for point in points if (value := getattr(point.measured, name)) is not None]
        return statistics.median(values) if values else None

    figures = Figures(*(of(name) for name in ("iops", "mean_ns", "p50_ns", "p99_ns")))
    return replace(points[0], measured=figures, runs=sum(point.runs for point in points))


def held_out(points: Sequence[Point], share: float, seed: int) -> tuple[list[Point], list[Point]]:
    """Those to fit to, and those to be judged by.

    Of each kind of load the same share is held out: which ones, the seed says. A kind of fewer than three points is
    fitted to whole. Its loads with the fewest and the most commands in flight are, too: what they say (an idle drive's
    latency, a full one's rate) nothing else does.
    """
    kinds: dict[tuple[str, float, int, str], list[Point]] = {}
    for point in points:
        load = point.load
        kinds.setdefault((load.rw, load.read_share, load.bs_bytes, point.direction), []).append(point)
    fitted: list[Point] = []
    held: list[Point] = []
    for kind in kinds.values():
        kind.sort(key=lambda point: (point.load.in_flight, point.key))
        inner = kind[1:-1]
        drawn = sorted(inner, key=lambda point: hashlib.sha256(f"{seed} {point.key}".encode()).digest())
        out = {point.key for point in drawn[: min(len(inner), math.ceil(share * len(kind)))]} if share > 0 else set()
        fitted += [point for point in kind if point.key not in out]
        held += [point for point in kind if point.key in out]
    return fitted, held
