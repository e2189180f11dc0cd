"""A result as a notebook shows it: a small table of what came out, beside what the model gives."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from flashmob.units import format_duration, format_rate

if TYPE_CHECKING:
    from flashmob.result import Result

_COLOURS = {"VALID": "#1a7f37", "INVALID": "#cf222e"}


def html(result: Result) -> str:
    """The table; everything that came from outside is escaped."""
    name = escape(str(result.device.get("profile") or result.jobname or "device"))
    rows = []
    for label, direction in (("reads", result.read), ("writes", result.write)):
        if direction is not None:
            latency = direction.latency_ns
            rows.append(_row(label, direction.iops, latency.mean, latency.p50, latency.p99, latency.max))
    latency = result.latency_ns
    rows.append(_row("all", result.iops, latency.mean, latency.p50, latency.p99, latency.max))
    if result.model is not None:
        latency = result.model.latency_ns
        rows.append(_row("model", result.model.iops, latency.mean, latency.p50, latency.p99, latency.max))
    colour = _COLOURS.get(result.verdict.partition(" ")[0], "#9a6700")
    cause = f": {escape(result.verdict_cause)}" if result.verdict_cause else ""
    return (
        f"<table><caption>{name} in {escape(result.clock)} time</caption>"
        "<thead><tr><th></th><th>rate</th><th>mean</th><th>p50</th><th>p99</th><th>max</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
        f'<p><b style="color:{colour}">{escape(result.verdict_text)}</b>{cause}</p>'
    )


def _row(label: str, iops: float, *times_ns: float) -> str:
    cells = "".join(f"<td>{format_duration(ns)}</td>" for ns in times_ns)
    return f"<tr><th>{label}</th><td>{format_rate(iops)}</td>{cells}</tr>"
