"""What a report says of a replayed trace: what is in the file, and all that was changed on the way to the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flashmob.units import format_duration, format_size

_MAX_DISKS = 4
_HOUR_NS = 3_600_000_000_000
_DAY_NS = 24 * _HOUR_NS


def trace_lines(result: Mapping[str, Any]) -> list[str]:
    """Lines for the report, each short enough to stand beside a label in 80 columns; none without a trace.

    Args:
        result: the result's JSON document. A name of a disk is never cut, so that it can be copied to --trace-disk.
    """
    trace = result.get("trace")
    if not isinstance(trace, Mapping):
        return []
    as_fast = bool((result.get("options") or {}).get("trace_as_fast"))
    timing = ", replayed as fast as it goes" if as_fast else ""
    requests = _count(trace, "requests")
    return [
        f"{trace.get('format', '')}, {_requests(requests)} over {_span(_count(trace, 'span_ns'))}{timing}",
        _kinds(trace),
        f"largest {format_size(_count(trace, 'largest_bytes'))}, the highest ends at "
        f"{format_size(_count(trace, 'end_bytes'))}",
        _namespace(trace),
        *_disks(trace),
        *_changes(trace, requests),
    ]


def _count(values: Mapping[str, Any], key: str) -> int:
    return int(values.get(key) or 0)


def _requests(count: int) -> str:
    return f"{count:,} request{'s' * (count != 1)}"


def _span(ns: int) -> str:
    """A trace may cover weeks, which nobody reads in seconds."""
    if ns >= 2 * _DAY_NS:
        return f"{ns / _DAY_NS:.1f} days"
    return f"{ns / _HOUR_NS:.1f} hours" if ns >= 2 * _HOUR_NS else format_duration(ns)


def _kinds(trace: Mapping[str, Any]) -> str:
    parts = [
        f"{_count(trace, kind + 's'):,} {kind}{'s' * (_count(trace, kind + 's') != 1)} of "
        f"{format_size(_count(trace, kind + '_bytes'))}"
        for kind in ("read", "write", "trim")
        if trace.get(kind + "s")
    ]
    if flushes := _count(trace, "flushes"):
        parts.append(f"{flushes:,} flush{'es' * (flushes != 1)}")
    return ", ".join(parts)


def _namespace(trace: Mapping[str, Any]) -> str:
    size = format_size(_count(trace, "namespace_bytes"))
    return f"namespace of {size}" + (", as large as the trace needs" if trace.get("sized_from_trace") else "")


def _disks(trace: Mapping[str, Any]) -> list[str]:
    count = _count(trace, "disk_count")
    if count < 2:
        return []
    if trace.get("disk") is not None:
        return [f"one of {count:,} disks: {trace['disk']}"]
    disks = [disk for disk in trace.get("disks") or [] if disk.get("replayed")]
    lines = [f"{count:,} disks side by side (--trace-disk NAME chooses one):"]
    lines += [
        f"  {disk['name']}: {_requests(_count(disk, 'requests'))}, from {format_size(_count(disk, 'offset_bytes'))}"
        for disk in disks[:_MAX_DISKS]
    ]
    more = count - min(len(disks), _MAX_DISKS)
    return lines + ([f"  and {more:,} more" + (" (the busiest are in the JSON)" if more else "")] if more else [])


def _changes(trace: Mapping[str, Any], requests: int) -> list[str]:
    """What is not replayed as it is written. What moves requests to other blocks comes first."""
    lines = []
    namespace = format_size(_count(trace, "namespace_bytes"))
    if wrapped := _count(trace, "wrapped"):
        lines.append(f"WRAPPED: {wrapped:,} of {requests:,} lay beyond {namespace}")
    if moved := _count(trace, "moved"):
        lines.append(f"MOVED: {moved:,} reached over the end of {namespace}")
    if shortened := _count(trace, "shortened"):
        lines.append(f"SHORTENED: {shortened:,} larger than {namespace}")
    if lines:
        lines.append(f"--size {_size_option(_count(trace, 'end_bytes'))} or more leaves them where they are")
    if rounded := _count(trace, "rounded"):
        grown = format_size(_count(trace, "rounded_bytes"))
        lines.append(f"{rounded:,} grown to whole blocks, by {grown} together")
    if split := _count(trace, "split"):
        lines.append(f"{split:,} too large for one command: {_count(trace, 'commands'):,} sent")
    for key, text in (("reordered", "written out of order, sorted by time"), ("empty", "of no bytes left out")):
        noted = trace.get(key) or {}
        if count := _count(noted, "count"):
            lines.append(f"{count:,} {text} (first: line {_count(noted, 'first_line'):,})")
    if left_out := _count(trace, "left_out"):
        lines.append(f"{_requests(left_out)} left out: beyond --ios or --runtime")
    return lines


def _size_option(end_bytes: int) -> str:
    """The size that holds them all, as --size takes it."""
    for unit, scale in (("G", 1 << 30), ("M", 1 << 20)):
        if end_bytes >= 8 * scale:
            return f"{-(-end_bytes // scale)}{unit}"
    return f"{max(1, -(-end_bytes // (1 << 20)))}M"
