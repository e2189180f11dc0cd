"""How far a device is from what was measured: by point, and over all of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flashmob.calibration.fit import error_of
from flashmob.calibration.points import Figures, Point

FIGURES = ("iops", "mean_ns", "p50_ns", "p99_ns")
# What a table calls them.
TITLES = {"iops": "rate", "mean_ns": "mean latency", "p50_ns": "median latency", "p99_ns": "p99 latency"}


@dataclass(frozen=True, slots=True)
class Judged:
    """A point and what the device came to; `fitted` says whether the fit saw it."""

    point: Point
    modelled: Figures
    fitted: bool = False

    def error(self, figure: str) -> float | None:
        """By which share of the measured the modelled is off; None where either is unknown."""
        return error_of(getattr(self.point.measured, figure), getattr(self.modelled, figure))

    @property
    def worst(self) -> float:
        """The larger error of rate and mean latency, as a share."""
        return max((abs(off) for name in ("iops", "mean_ns") if (off := self.error(name)) is not None), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        point = self.point
        return {
            "load": {
                "rw": point.load.rw,
                "bs_bytes": point.load.bs_bytes,
                "depth": point.load.depth,
                "queues": point.load.queues,
                "read_share": point.load.read_share,
                "steady": point.load.is_steady,
            },
            "direction": point.direction,
            "rows": point.runs,
            "fitted": self.fitted,
            "measured": asdict(point.measured),
            "modelled": asdict(self.modelled),
            "error": {name: self.error(name) for name in FIGURES},
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors of one figure over some points, as shares."""

    count: int
    median: float
    most: float


def summary(judged: Sequence[Judged], figure: str) -> Summary | None:
    """None where no point has the figure."""
    errors = [abs(off) for one in judged if (off := one.error(figure)) is not None]
    return Summary(len(errors), statistics.median(errors), max(errors)) if errors else None


def summaries(judged: Sequence[Judged]) -> dict[str, dict[str, float]]:
    """As JSON: figure -> count, median and most."""
    found = {name: summary(judged, name) for name in FIGURES}
    return {name: asdict(one) for name, one in found.items() if one is not None}


def worst(judged: Sequence[Judged], count: int = 3) -> list[Judged]:
    """The points that are the furthest away, worst first."""
    return sorted(judged, key=lambda one: (-one.worst, one.point.key))[:count]
