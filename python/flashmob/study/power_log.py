"""Watts that a logger at the plug wrote down, once a second most likely, with a clock of its own."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from flashmob.errors import ConfigError
from flashmob.study.window import Trace, Window

# A logger that writes every second and has lost this much has lost the measurement.
_WIDEST_GAP_NS = 5_000_000_000
_FORMATS = ("%m/%d/%y %I:%M:%S %p", "%m/%d/%Y %H:%M:%S", "%Y/%m/%d %H:%M:%S")
_POWER_WORDS = ("active power", "power", "watt")
_WATTS = ("power_w", "watts", "w")
_UNIT_W = re.compile(r"power.*([(\[,]\s*|[_ ])w[)\]]?$")
_OTHER_UNIT = re.compile(r"kw|kilowatt|milliwatt|\bmw\b|_mw$|\bva[r]?\b|factor|watt.?hour|wh\b")


class PowerLog:
    """A file of comma-separated values with a column of times and one of watts, read after the run.

    Times are seconds since 1970, ISO 8601 or a logger's usual form, in this machine's time zone where they name none;
    `offset_s` is added to them: what the logger's clock is behind this machine's.
    """

    name = "log"
    absent = ""
    is_energy = True

    def __init__(self, path: str | Path, offset_s: float = 0.0) -> None:
        """Reads the file.

        Raises:
            ConfigError: naming the line that is not understood.
        """
        self._path = Path(path)
        times_ns, watts = _read(self._path)
        self.begin_ns, self.end_ns = times_ns[0], times_ns[-1]
        shifted = [time_ns + round(offset_s * 1e9) for time_ns in times_ns]
        joules = [0.0]
        for (before_ns, now_ns), (before, now) in zip(pairwise(shifted), pairwise(watts), strict=True):
            joules.append(joules[-1] + (before + now) / 2 * (now_ns - before_ns) / 1e9)
        self._trace = Trace(shifted, joules, widest_gap_ns=_WIDEST_GAP_NS)

    def __enter__(self) -> PowerLog:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Joules and watts of the window, by the wall clock that the result names."""
        window = Window.of(result)
        if window is None or window.seconds <= 0:
            return {"absent": "the result has no measured window"}
        ahead_ns = window.realtime_ahead_ns
        joules = self._trace.grown(window.begin_ns + ahead_ns, window.end_ns + ahead_ns)
        if isinstance(joules, str):
            return {"absent": f"{self._path.name}: {joules}"}
        return {"joules": joules, "watts": joules / window.seconds}


def _read(path: Path) -> tuple[list[int], list[float]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--power-log {path}: cannot be read ({error}); name a logger's CSV file") from None
    try:
        rows = list(csv.reader(lines))
    except csv.Error as error:
        raise ConfigError(f"--power-log {path}: is no table ({error}); name a logger's CSV file") from None
    head = next((place for place, row in enumerate(rows) if _columns(row) is not None), None)
    if head is None:
        raise ConfigError(f"--power-log {path}: no line names a column of times and one of watts; give it a heading")
    columns = _columns(rows[head])
    assert columns is not None
    at_time, at_watts = columns
    times_ns: list[int] = []
    watts: list[float] = []
    for number, row in enumerate(rows[head + 1 :], head + 2):
        if len(row) <= max(columns) or not row[at_watts].strip():
            continue  # Loggers write lines of events without a reading.
        try:
            time_ns, value = _time_ns(row[at_time].strip()), float(row[at_watts])
            if not math.isfinite(value):
                raise ValueError(value)
        except (ValueError, OverflowError):
            raise ConfigError(
                f"--power-log {path}: line {number} is not understood ({','.join(row)[:60]}); "
                "use seconds since 1970 or ISO 8601, and watts"
            ) from None
        if times_ns and time_ns <= times_ns[-1]:
            raise ConfigError(f"--power-log {path}: line {number} is not later than the one before; sort the file")
        times_ns.append(time_ns)
        watts.append(value)
    if len(times_ns) < 2:
        raise ConfigError(f"--power-log {path}: has fewer than two readings; give it more")
    return times_ns, watts


def _columns(row: list[str]) -> tuple[int, int] | None:
    names = [name.strip().lower() for name in row]
    times = [place for place, name in enumerate(names) if "time" in name]
    # One that names its unit goes before one that does not; a kilowatt or a power factor is none of watts.
    watts = [place for place, name in enumerate(names) if name in _WATTS or _UNIT_W.search(name)]
    watts += [
        place
        for word in _POWER_WORDS
        for place, name in enumerate(names)
        if word in name and not _OTHER_UNIT.search(name)
    ]
    return (times[0], watts[0]) if times and watts else None


def _time_ns(text: str) -> int:
    try:
        return round(float(text) * 1e9)
    except ValueError:
        pass
    for form in _FORMATS:
        try:
            return round(datetime.strptime(text, form).timestamp() * 1e9)  # in the machine's own zone
        except ValueError:
            continue
    return round(datetime.fromisoformat(text).timestamp() * 1e9)
