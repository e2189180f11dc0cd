"""Figures from results: rate and latency against load, the latencies' distribution, and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashmob.errors import ConfigError
from flashmob.figure import (
    END_TO_END,
    MODEL_LINE,
    PROCESSING,
    SERIES,
    TARGET,
    bars,
    binary_label,
    figure,
    heading,
    latency_ticks,
    load_axis,
)
from flashmob.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# More curves than this in one panel cannot be told apart.
_MOST_CURVES = len(SERIES)


def in_flight(result: Result) -> int:
    """Requests outstanding at once under the result's closed loop."""
    options = result.options
    return int(options.get("requesters") or 0) or int(options.get("queues", 1)) * int(options.get("queue_depth", 1))


def offered_iops(result: Result) -> float:
    """Arrivals per second of an open loop; 0 for a closed loop."""
    return float(result.options.get("rate_iops") or 0.0)


def device_name(result: Result) -> str:
    """What to call the device in a legend."""
    return str(result.device.get("profile") or result.jobname or "device")


def draw_results(results: Sequence[Result], path: Path, *, title: str | None = None) -> None:
    """Draws results into one file: distribution and breakdown, and against load if there are several loads."""
    if not results:
        raise ConfigError("there is nothing to draw; give at least one result of flashmob bench --json")
    open_loop = all(offered_iops(result) for result in results)
    several = any(len({_x(result, open_loop) for result in group}) > 1 for group in _by_device(results).values())
    note = "; ".join(_note(result) for result in results[:1]) + ("; ..." if len(results) > 1 else "")
    with figure(2 if several else 1, 2, path, title=title or _title(results), footnote=note) as (_, axes):
        if several:
            _rates(axes[0][0], results, open_loop)
            _latencies(axes[0][1], results, open_loop)
        distribution(axes[-1][0], results)
        breakdown(axes[-1][1], results)


def _title(results: Sequence[Result]) -> str:
    names = list(dict.fromkeys(device_name(result) for result in results))
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def _note(result: Result) -> str:
    version = result.provenance.get("version", "")
    return f"flashmob {version}, {result.rw} of {result.bs} bytes, {result.clock} time, verdict {result.verdict}"


def _by_device(results: Sequence[Result]) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(device_name(result), []).append(result)
    return groups


def _against_load(axes: Axes, results: Sequence[Result], open_loop: bool) -> None:
    if open_loop:
        axes.set_xlabel("offered rate (MIOPS)")
    else:
        axes.set_xlabel("requests in flight")
        load_axis(axes, [in_flight(result) for result in results])


def _x(result: Result, open_loop: bool) -> float:
    return offered_iops(result) / 1e6 if open_loop else in_flight(result)


def _rates(axes: Axes, results: Sequence[Result], open_loop: bool) -> None:
    heading(axes, "Rate against load", "", "MIOPS")
    for (name, group), colour in zip(_by_device(results).items(), SERIES * 9, strict=False):
        ordered = sorted(group, key=lambda result: _x(result, open_loop))
        xs = [_x(result, open_loop) for result in ordered]
        modelled = [(x, result.model_iops / 1e6) for x, result in zip(xs, ordered, strict=True) if result.model_iops]
        if modelled:
            axes.plot(*zip(*modelled, strict=True), **MODEL_LINE)
        axes.plot(xs, [result.iops / 1e6 for result in ordered], "o-", color=colour, label=name)
    axes.plot([], [], **MODEL_LINE, label="what the model gives")
    axes.set_ylim(bottom=0)
    axes.legend(loc="best")
    _against_load(axes, results, open_loop)


def _latencies(axes: Axes, results: Sequence[Result], open_loop: bool) -> None:
    heading(axes, "Latency against load", "", "latency")
    for (name, group), colour in zip(_by_device(results).items(), SERIES * 9, strict=False):
        ordered = sorted(group, key=lambda result: _x(result, open_loop))
        xs = [_x(result, open_loop) for result in ordered]
        axes.plot(xs, [result.latency_ns.mean for result in ordered], "o-", color=colour, label=f"{name}, mean")
        p99 = [result.latency_ns.p99 for result in ordered]
        axes.plot(xs, p99, "--", color=colour, linewidth=1.3, alpha=0.75, label=f"{name}, p99")
    axes.set_yscale("log")
    latency_ticks(axes.yaxis, log=True)
    axes.legend(loc="upper left")
    _against_load(axes, results, open_loop)


def distribution(axes: Axes, results: Sequence[Result]) -> None:
    """The share of requests below a latency, drawn so that each further nine takes the same room."""
    shown = _spread([result for result in results if len(result.latency_cdf) > 1])
    heading(axes, "Distribution of latencies", "latency", "requests at or below it")
    deepest = 1e-2
    for result, colour in zip(shown, SERIES * 9, strict=False):
        points = [(ns, 1 - share) for ns, share in result.latency_cdf if share < 1]
        if not points:
            continue
        deepest = min(deepest, points[-1][1])
        axes.plot(*zip(*points, strict=True), color=colour, label=_label(result, results), drawstyle="steps-post")
    axes.set_xscale("log")
    axes.set_yscale("log")
    nines = [share for share in (0.5, 0.1, 0.01, 0.001, 1e-4, 1e-5, 1e-6) if share >= deepest / 2]
    axes.set_yticks(nines, [_percentile_label(share) for share in nines])
    axes.set_ylim(1.0, max(deepest / 1.5, 1e-7))
    axes.minorticks_off()
    latency_ticks(axes.xaxis, log=True)
    if shown:
        axes.legend(loc="best")


def _percentile_label(above: float) -> str:
    return f"{100 * (1 - above):.10g} %"


def _spread(results: Sequence[Result]) -> list[Result]:
    if len(results) <= _MOST_CURVES:
        return list(results)
    last = len(results) - 1
    chosen = {round(index * last / (_MOST_CURVES - 1)) for index in range(_MOST_CURVES)}
    return [results[index] for index in sorted(chosen)]


def _label(result: Result, among: Sequence[Result]) -> str:
    same_device = len({device_name(other) for other in among}) == 1
    load = (
        f"{offered_iops(result) / 1e6:g} M/s"
        if offered_iops(result)
        else f"{binary_label(in_flight(result))} in flight"
    )
    return load if same_device and len(among) > 1 else f"{device_name(result)}, {load}"


def breakdown(axes: Axes, results: Sequence[Result]) -> None:
    """Mean target, processing and end-to-end latency side by side (SwarmIO's figure 11)."""
    shown = _spread(results)
    heading(axes, "Target, processing, end to end", "", "mean latency")
    series = (
        ("target (model)", TARGET, [result.target_ns.mean if result.target_ns else 0.0 for result in shown]),
        ("processing", PROCESSING, [result.processing_ns.mean if result.processing_ns else 0.0 for result in shown]),
        ("end to end", END_TO_END, [result.latency_ns.mean for result in shown]),
    )
    names = [_label(result, results).replace(" in flight", "") for result in shown]
    bars(axes, [name.replace(", ", "\n" if len(shown) <= 3 else " ") for name in names], series)
    axes.set_xlabel("offered rate" if all(offered_iops(result) for result in shown) else "requests in flight")
