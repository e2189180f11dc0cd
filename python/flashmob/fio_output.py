"""A result in the schema of fio's JSON, with its bins (json+), so that scripts and plots made for fio read it.

A figure that flashmob does not measure is left out, and not written as a zero: CPU time by user and kernel, depths
reached, and, where reads and writes are mixed, what would need each direction's own distribution.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashmob.result import Direction, Distribution, Result

FIO_JSON = "fio-json"
# What fio asks for where a job names no percentiles.
_PERCENTILES = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
_REPORTED = {50.0: "p50", 90.0: "p90", 99.0: "p99", 99.9: "p999", 99.99: "p9999"}
_EIO, _EILSEQ = 5, 84
# Upper edges of fio's bins of latency, in the unit that names them.
_EDGES = (2, 4, 10, 20, 50, 100, 250, 500, 750, 1000)
_NOTHING = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}


def fio_json(*results: Result) -> str:
    """The document, as text."""
    return json.dumps(fio_document(*results), indent=2, allow_nan=False)


def fio_document(*results: Result) -> dict[str, Any]:
    """The document of one result or more: a job each, which all queues are reported in together (group_reporting)."""
    when = _when(results[-1])
    return {
        "fio version": f"flashmob-{results[-1].provenance.get('version', '')}",
        "timestamp": int(when.timestamp()),
        "timestamp_ms": int(when.timestamp() * 1000),
        "time": when.strftime("%a %b %d %H:%M:%S %Y"),
        "jobs": [_job(result) | {"groupid": place} for place, result in enumerate(results)],
        "disk_util": [],
    }


def _when(result: Result) -> datetime:
    try:
        return datetime.fromisoformat(result.provenance["date"]).astimezone(UTC)
    except (KeyError, TypeError, ValueError):
        return datetime.fromtimestamp(0, UTC)


def _job(result: Result) -> dict[str, Any]:
    counts = _counts(result)
    seconds = result.runtime_seconds
    return {
        "jobname": result.jobname,
        "error": _error(result),
        "eta": 0,
        "elapsed": math.ceil(seconds),
        "job options": _options(result),
        "read": _direction(result, result.read, None if result.write else counts),
        "write": _direction(result, result.write, None if result.read else counts),
        "trim": _direction(result, None, None),
        "sync": {"total_ios": 0, "lat_ns": _NOTHING},
        "job_runtime": round(seconds * 1000),
        **_latency_bins(counts),
        "latency_depth": (result.options or {}).get("queue_depth", 0),
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
    }


def _error(result: Result) -> int:
    """An errno, as fio has: what failed first is not known, but that something did."""
    if result.verify_errors:
        return _EILSEQ
    return _EIO if result.errors or result.unanswered or result.device_failed else 0


def _options(result: Result) -> dict[str, str]:
    """The options of the load under fio's names, as text."""
    given = result.options or {}
    names = {"rw": "rw", "bs": "bs", "queue_depth": "iodepth", "queues": "numjobs"}
    # Whoever reads this must not take the queues for jobs that are reported one by one.
    found = {"name": result.jobname, "ioengine": "flashmob", "group_reporting": "1"}
    found |= {fio: str(given[own]) for own, fio in names.items() if given.get(own)}
    # What fio calls "random" is what it does unless it is told otherwise.
    if given.get("distribution", "uniform") != "uniform":
        found["random_distribution"] = given["distribution"]
    if given.get("rate_iops"):
        found["rate_iops"] = str(given["rate_iops"])
    if result.read and result.write and "read_share" in given:
        found["rwmixread"] = f"{100 * given['read_share']:g}"
    if given.get("ios"):
        found["number_ios"] = str(given["ios"])
    else:
        found["runtime"] = f"{result.runtime_seconds:g}"
    return found


def _counts(result: Result) -> list[tuple[int, int]]:
    """Latencies of all requests, ns, and how many were of each; together as many as there were requests."""
    counts, before = [], 0
    for latency, share in result.latency_cdf or ():
        upto = round(share * result.ios)
        if upto > before:
            counts.append((round(latency), upto - before))
        before = max(before, upto)
    return counts


def _direction(result: Result, direction: Direction | None, counts: Sequence[tuple[int, int]] | None) -> dict[str, Any]:
    if direction is None or not direction.ios:
        rate = {"bw_min": 0, "bw_max": 0, "bw_agg": 0.0, "bw_mean": 0.0, "bw_dev": 0.0, "bw_samples": 0}
        iops = {"iops_min": 0, "iops_max": 0, "iops_mean": 0.0, "iops_stddev": 0.0, "iops_samples": 0}
        moved = {"io_bytes": 0, "io_kbytes": 0, "bw_bytes": 0, "bw": 0, "iops": 0.0, "runtime": 0, "total_ios": 0}
        latencies = {name: dict(_NOTHING) for name in ("slat_ns", "clat_ns", "lat_ns")}
        return {**moved, "short_ios": 0, "drop_ios": 0, **latencies, **rate, **iops}
    bytes_ = round(direction.bw_bytes * result.runtime_seconds)
    kib = round(direction.bw_bytes / 1024)
    latency = _latency(direction, counts)
    return {
        "io_bytes": bytes_,
        "io_kbytes": bytes_ // 1024,
        "bw_bytes": round(direction.bw_bytes),
        "bw": kib,
        "iops": direction.iops,
        "runtime": round(result.runtime_seconds * 1000),
        "total_ios": direction.ios,
        "short_ios": 0,
        "drop_ios": 0,
        # A request is submitted by one store to a doorbell, which is not timed by itself.
        "slat_ns": dict(_NOTHING),
        "clat_ns": latency,
        "lat_ns": {name: value for name, value in latency.items() if name not in ("percentile", "bins")},
        # The run is one sample of its rate.
        "bw_min": kib,
        "bw_max": kib,
        "bw_agg": 100.0,
        "bw_mean": float(kib),
        "bw_dev": 0.0,
        "bw_samples": 1,
        "iops_min": round(direction.iops),
        "iops_max": round(direction.iops),
        "iops_mean": direction.iops,
        "iops_stddev": 0.0,
        "iops_samples": 1,
    }


def _latency(direction: Direction, counts: Sequence[tuple[int, int]] | None) -> dict[str, Any]:
    figures: Distribution = direction.latency_ns
    least = figures.min if figures.min is not None else (counts[0][0] if counts else figures.p50)
    found: dict[str, Any] = {"min": round(least), "max": round(figures.max), "mean": figures.mean}
    if counts:
        squares = sum(count * (latency - figures.mean) ** 2 for latency, count in counts)
        found["stddev"] = math.sqrt(squares / direction.ios)
    found["N"] = direction.ios
    found["percentile"] = {f"{part:.6f}": value for part, value in _percentiles(figures, counts)}
    if counts:
        found["bins"] = {str(latency): count for latency, count in counts}
    return found


def _percentiles(figures: Distribution, counts: Sequence[tuple[int, int]] | None) -> list[tuple[float, int]]:
    if not counts:
        values = ((part, getattr(figures, name)) for part, name in _REPORTED.items())
        return [(part, round(value)) for part, value in values if value is not None]
    whole = sum(count for _, count in counts)
    found, below, place = [], counts[0][1], 0
    for part in _PERCENTILES:
        while below < part / 100 * whole and place + 1 < len(counts):
            place += 1
            below += counts[place][1]
        found.append((float(part), counts[place][0]))
    return found


def _latency_bins(counts: Sequence[tuple[int, int]]) -> dict[str, dict[str, float]]:
    """Percent of all requests by latency, in fio's bins: up to the value that names each, from the one before."""
    whole = sum(count for _, count in counts)

    def percent(above: float, upto: float) -> float:
        return 100 * sum(count for latency, count in counts if above < latency <= upto) / whole if whole else 0.0

    found, last = {}, -1.0
    for name, unit in (("latency_ns", 1), ("latency_us", 10**3), ("latency_ms", 10**6)):
        edges = [*_EDGES, 2000] if unit == 10**6 else list(_EDGES)
        bounds = [last, *(float(edge * unit) for edge in edges)]
        found[name] = {str(edge): percent(*pair) for edge, pair in zip(edges, pairwise(bounds), strict=True)}
        last = bounds[-1]
    found["latency_ms"][">=2000"] = percent(last, math.inf)
    return found
