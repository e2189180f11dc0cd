"""Reads what was measured: tables (CSV) and fio's JSON.

A table has one row for each load, with a line of names above: `rw`, `bs_bytes`, `iodepth`, `numjobs`, and of `iops`,
`bw_MBps`, `lat_mean_us`, `lat_p50_us`, `lat_p99_us` those that were measured; a `state` of `steady` is believed of
random writes. `randrw:70r:read` is the read half of a mix with 70 % reads.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashmob.calibration.points import LOADS, Direction, Figures, Found, Load, Point
from flashmob.errors import ConfigError
from flashmob.units import parse_size

_NEEDED = ("rw", "bs_bytes", "iodepth")
_MOST_BYTES = 256 << 20
_MIXED = re.compile(r"(rw|randrw):(\d{1,3})r:(read|write)")
_ROWS_SHOWN = 200  # Characters of a wrong value that a message repeats.


@dataclass(frozen=True, slots=True)
class Filter:
    """Takes rows whose column holds a text, or with `keep` false those whose column does not."""

    column: str
    text: str
    keep: bool = True

    @classmethod
    def parse(cls, assignment: str, *, keep: bool) -> Filter:
        """From COLUMN=TEXT.

        Raises:
            ConfigError: if it is something else.
        """
        column, equals, text = assignment.partition("=")
        if not equals or not column or not text:
            option = "--only" if keep else "--without"
            raise ConfigError(f"{option} {assignment} is not possible; write COLUMN=TEXT, such as engine=spdk")
        return cls(column, text, keep)

    def takes(self, row: Mapping[str, str], where: str) -> bool:
        """Whether a row passes.

        Raises:
            ConfigError: if there is no such column.
        """
        if self.column not in row:
            raise ConfigError(f"{where} has no column {self.column}; it has {', '.join(row)}")
        return (self.text in (row[self.column] or "")) == self.keep


def read_sources(paths: Sequence[Path], filters: Sequence[Filter] = ()) -> Found:
    """Every point of some files, as they stand there.

    Raises:
        ConfigError: naming the file and what is wrong with it.
    """
    found = Found()
    for path in paths:
        text = _text(path)
        if text.lstrip()[:1] in ("{", "["):
            _read_fio(text, path, found, filters)
        else:
            _read_table(text, path, found, filters)
    if not found.points:
        reasons = "; ".join(f"{count} rows: {why}" for why, count in found.left_out.items()) or "they hold no row"
        names = ", ".join(str(path) for path in paths)
        raise ConfigError(f"there is nothing to calibrate with in {names} ({reasons})")
    return found


def _text(path: Path) -> str:
    try:
        if path.is_file() and path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path} has more than {_MOST_BYTES >> 20} MiB; give the table or fio's JSON itself")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not text; give a table (CSV) or fio's JSON") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _read_table(text: str, path: Path, found: Found, filters: Sequence[Filter]) -> None:
    try:
        rows = list(csv.DictReader(text.splitlines(), strict=True))
    except csv.Error as error:
        raise ConfigError(f"{path} is no table: {error}") from None
    names = list(rows[0]) if rows else []
    if missing := [name for name in _NEEDED if name not in names]:
        raise ConfigError(f"{path} has no column {missing[0]}; its first line must name {', '.join(_NEEDED)}")
    for number, row in enumerate(rows, 2):
        where = f"line {number} of {path}"
        if None in row or None in row.values():
            raise ConfigError(f"{where} has {'more' if None in row else 'fewer'} values than the first line has names")
        if not all(one.takes(row, str(path)) for one in filters):
            found.leave_out("left out by --only or --without")
        elif (point := _row_point(row, where, found)) is not None:
            found.points.append(point)


def _row_point(row: Mapping[str, str], where: str, found: Found) -> Point | None:
    parsed = _kind(row["rw"].strip())
    if parsed is None:
        found.leave_out(f"rw {row['rw'][:_ROWS_SHOWN]} cannot be run here")
        return None
    rw, read_share, direction = parsed
    numbers = {}
    for name in ("bs_bytes", "iodepth", "numjobs"):
        value = _number(row.get(name) or ("1" if name == "numjobs" else ""), name, where, text_is_none=True)
        if value is None or value < 1 or value != int(value):
            found.leave_out(f"{name} is not a whole number")
            return None
        numbers[name] = int(value)
    iops = _number(row.get("iops", ""), "iops", where)
    bandwidth = _number(row.get("bw_MBps", ""), "bw_MBps", where)
    if iops is None and bandwidth is not None:
        iops = bandwidth * 1e6 / numbers["bs_bytes"]
    means, medians, tails = (_number(row.get(f"lat_{name}_us", ""), f"lat_{name}_us", where) for name in _LATENCIES)
    is_steady = row.get("state", "").strip() == "steady" and rw in ("randwrite", "randrw")
    load = Load(rw, numbers["bs_bytes"], numbers["iodepth"], numbers["numjobs"], read_share, is_steady)
    return _point(load, direction, Figures(iops, *(_ns(value) for value in (means, medians, tails))), found)


_DIRECTIONS: tuple[Direction, ...] = ("read", "write")
_LATENCIES = ("mean", "p50", "p99")


def _ns(us: float | None) -> float | None:
    return None if us is None else us * 1e3


def _kind(rw: str) -> tuple[str, float, Direction] | None:
    if rw in ("read", "randread"):
        return rw, 1.0, "read"
    if rw in ("write", "randwrite"):
        return rw, 0.0, "write"
    mixed = _MIXED.fullmatch(rw)
    if mixed is None or not 0 < int(mixed[2]) < 100:
        return None
    return mixed[1], int(mixed[2]) / 100, "read" if mixed[3] == "read" else "write"


def _number(text: str, name: str, where: str, *, text_is_none: bool = False) -> float | None:
    """None where nothing was measured; that includes a 0, which no drive does."""
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        if text_is_none:
            return None
        raise ConfigError(f"{name} of {where} is {text[:_ROWS_SHOWN]!r}; use a number, or nothing") from None
    if not math.isfinite(value) or value < 0:
        raise ConfigError(f"{name} of {where} is {text[:_ROWS_SHOWN]}; use a number of at least 0, or nothing")
    return value or None


def _point(load: Load, direction: Direction, measured: Figures, found: Found) -> Point | None:
    if measured.iops is None and measured.mean_ns is None:
        found.leave_out("neither a rate nor a mean latency")
        return None
    if load.bs_bytes % 512 != 0 or load.bs_bytes > 1 << 30:
        found.leave_out("requests that are no whole blocks")
        return None
    if load.in_flight > 1 << 16 or load.depth > 65535:
        found.leave_out("more in flight than 65,536")
        return None
    return Point(load, direction, measured)


def _read_fio(text: str, path: Path, found: Found, filters: Sequence[Filter]) -> None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no JSON: {error}") from None
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise ConfigError(f"{path} has no jobs; give what fio writes with --output-format=json")
    shared = document.get("global options")
    alike = Counter(_entry(job) for job in jobs)
    for number, job in enumerate(jobs):
        if not isinstance(job, dict):
            raise ConfigError(f"job {number} of {path} is not an object")
        options = {**(shared if isinstance(shared, dict) else {}), **_object(job, "job options")}
        row = {name: str(value) for name, value in options.items()}
        where = f"job {number} of {path}"
        if not all(one.takes(row, where) for one in filters):
            found.leave_out("left out by --only or --without")
        elif "rate" in options or "rate_iops" in options:
            found.leave_out("its rate was limited")
        else:
            found.points += _fio_points(row, job, where, found, is_one_of_several=alike[_entry(job)] > 1)


def _entry(job: Any) -> tuple[str, ...]:
    """What the entries of one job have in common, where fio reports each of its `numjobs` by itself."""
    if not isinstance(job, dict):
        return ()
    options = sorted((name, str(value)) for name, value in _object(job, "job options").items())
    return str(job.get("jobname")), str(job.get("groupid")), str(options)


def _fio_points(
    options: Mapping[str, str], job: Mapping[str, Any], where: str, found: Found, *, is_one_of_several: bool
) -> Iterator[Point]:
    rw = {"readwrite": "rw"}.get(options.get("rw", "read"), options.get("rw", "read"))
    if rw not in LOADS:
        found.leave_out(f"rw {rw[:_ROWS_SHOWN]} cannot be run here")
        return
    try:
        bs_bytes = parse_size(options.get("bs", "4k"), binary=True)
        depth, jobs = int(options.get("iodepth", "1")), int(options.get("numjobs", "1"))
        share = {"read": 1.0, "write": 0.0}.get(rw.removeprefix("rand"), float(options.get("rwmixread", "50")) / 100)
    except (ValueError, ConfigError) as error:
        found.leave_out(f"options that cannot be run here: {str(error)[:_ROWS_SHOWN]}")
        return
    if min(depth, jobs, bs_bytes) < 1 or not 0 <= share <= 1:
        found.leave_out("options out of range")
        return
    # fio reports each job of several in an entry of its own, unless they are reported as a group.
    grouped = jobs if is_one_of_several and "group_reporting" not in options else 1
    for direction in _DIRECTIONS:
        part = _object(job, direction)
        if part.get("total_ios"):
            figures = Figures(
                _json_number(part, "iops", where, grouped),
                _latency(part, "lat_ns", "mean", where),
                _percentile(part, "50.000000", where),
                _percentile(part, "99.000000", where),
            )
            point = _point(
                Load(rw, bs_bytes, depth, jobs, share), "read" if direction == "read" else "write", figures, found
            )
            if point is not None:
                yield point


def _object(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _json_number(data: Mapping[str, Any], key: str, where: str, times: int = 1) -> float | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ConfigError(f"{key} of {where} is {str(value)[:_ROWS_SHOWN]}; it must be a number of at least 0")
    return value * times or None


def _latency(part: Mapping[str, Any], key: str, figure: str, where: str) -> float | None:
    return _json_number(_object(part, key), figure, where)


def _percentile(part: Mapping[str, Any], name: str, where: str) -> float | None:
    of = _object(part, "clat_ns") if "clat_ns" in part else _object(part, "lat_ns")
    return _json_number(_object(of, "percentile"), name, where)
