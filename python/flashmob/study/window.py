"""The measured window of a run, and power over time that is held against it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Window:
    """From `begin_ns` to `end_ns` of CLOCK_MONOTONIC; CLOCK_REALTIME was `realtime_ahead_ns` ahead of it."""

    begin_ns: int
    end_ns: int
    realtime_ahead_ns: int

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Window | None:
        """The window that a result names; None where it names none."""
        found = result.get("window")
        return None if not found else cls(found["begin_ns"], found["end_ns"], found["realtime_ahead_ns"])

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.end_ns - self.begin_ns) / 1e9


class Trace:
    """A quantity that grows with time, such as the joules of a meter, read now and then."""

    def __init__(self, times_ns: Sequence[int], values: Sequence[float], *, widest_gap_ns: int | None = None) -> None:
        self._times_ns, self._values = list(times_ns), list(values)
        self._widest_gap_ns = widest_gap_ns

    def grown(self, begin_ns: int, end_ns: int) -> float | str:
        """How much it grew in between, with straight lines between readings; or why that is not known."""
        times_ns = self._times_ns
        if len(times_ns) < 2 or times_ns[0] > begin_ns or times_ns[-1] < end_ns:
            return "its readings do not cover the measured window"
        first, last = bisect_right(times_ns, begin_ns) - 1, min(bisect_right(times_ns, end_ns), len(times_ns) - 1)
        gap_ns = max(times_ns[place + 1] - times_ns[place] for place in range(first, last))
        if self._widest_gap_ns is not None and gap_ns > self._widest_gap_ns:
            return f"it has no reading for {gap_ns / 1e9:.1f} s of the measured window"
        return self._at(end_ns) - self._at(begin_ns)

    def _at(self, time_ns: int) -> float:
        place = min(max(bisect_right(self._times_ns, time_ns) - 1, 0), len(self._times_ns) - 2)
        begin_ns, end_ns = self._times_ns[place : place + 2]
        begin, end = self._values[place : place + 2]
        share = (time_ns - begin_ns) / (end_ns - begin_ns) if end_ns > begin_ns else 1.0
        return begin + (end - begin) * share


def unwrapped(values: Sequence[int], range_: int) -> list[int]:
    """A counter's readings without its wraps: it counts to `range_` and begins again; read at least once a turn."""
    turns, grown = 0, list(values[:1])
    for before, now in pairwise(values):
        turns += now < before
        grown.append(now + turns * (range_ + 1))
    return grown
