"""The figure of flashmob gpu check: overlap, random I/O over SSDs, graph kernels by access, and recommendation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashmob.figure import END_TO_END, MODEL_LINE, PROCESSING, SERIES, TARGET, bars, figure, from_zero, heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from flashmob.gpu.bench import GpuResult
    from flashmob.gpu.check import Point

    Runs = Sequence[tuple[Point, GpuResult]]


def draw_check(runs: Runs, path: Path, note: str) -> None:
    """Draws all runs of a check into one file."""
    with figure(2, 2, path, title="Threads of a GPU do their own I/O", footnote=note) as (_, axes):
        _overlap(axes[0][0], _of(runs, "ctc"))
        _random_io(axes[0][1], _of(runs, "random-io"))
        _graphs(axes[1][0], _of(runs, "graph"))
        _dlrm(axes[1][1], _of(runs, "dlrm"))


def _of(runs: Runs, series: str) -> Runs:
    return [(point, result) for point, result in runs if point.series == series]


def _overlap(axes: Axes, runs: Runs) -> None:
    heading(axes, "Overlap of computation and I/O", "computation : communication", "asynchronous over synchronous")
    for _, result in runs:
        points = result.outcome["points"]
        ratios = [point["ratio"] for point in points]
        axes.plot(ratios, [point["ideal"] for point in points], **MODEL_LINE, label="ideal")
        axes.plot(ratios, [point["speedup"] for point in points], "o-", color=SERIES[0], label="this run")
    axes.set_ylim(0.9, 2.1)
    if runs:
        axes.legend(loc="best")


def _random_io(axes: Axes, runs: Runs) -> None:
    heading(axes, "Random reads and writes", "SSDs", "GB/s")
    kinds = sorted({(point.options["bytes"], point.options["write"]) for point, _ in runs}, reverse=True)
    for (size, write), colour in zip(kinds, SERIES, strict=False):
        line = [
            (point.ssds, result.outcome["bytes_per_s"] / 1e9)
            for point, result in runs
            if (point.options["bytes"], point.options["write"]) == (size, write)
        ]
        label = f"{size} B {'writes' if write else 'reads'}"
        axes.plot(*zip(*sorted(line), strict=True), "s--" if write else "o-", color=colour, label=label)
    axes.set_xticks(sorted({point.ssds for point, _ in runs}))
    from_zero(axes)
    if runs:
        axes.legend(loc="best")


def _graphs(axes: Axes, runs: Runs) -> None:
    heading(axes, "Graph kernels by way of access", "", "time of the kernels")
    groups = list(dict.fromkeys((point.workload, point.options["graph"]) for point, _ in runs))
    ways = list(dict.fromkeys((point.access.access, point.access.cache_bytes) for point, _ in runs))
    cached = [size for access, size in ways if access == "cached"]
    series = []
    for (access, size), colour in zip(ways, (TARGET, *SERIES), strict=False):
        times = {
            (point.workload, point.options["graph"]): float(result.outcome["duration_ns"])
            for point, result in runs
            if (point.access.access, point.access.cache_bytes) == (access, size)
        }
        label = f"cached, {size}" if access == "cached" and len(cached) > 1 else access
        series.append((label, colour, [times.get(group, 0.0) for group in groups]))
    if series:
        bars(axes, [f"{workload} {graph[0].upper()}" for workload, graph in groups], series)
        if len(series) > 3:  # Two lines of legend, and room for them above the bars.
            axes.set_ylim(top=axes.get_ylim()[1] * 8)
            axes.legend(loc="upper left", ncols=3, borderaxespad=0.2)


def _dlrm(axes: Axes, runs: Runs) -> None:
    heading(axes, "DLRM inference", "configuration", "time of the kernels")
    configs = sorted({point.options["config"] for point, _ in runs})
    series = []
    for asynchronous, label, colour in ((False, "synchronous", PROCESSING), (True, "asynchronous", END_TO_END)):
        times = {
            point.options["config"]: float(result.outcome["duration_ns"])
            for point, result in runs
            if point.options["asynchronous"] == asynchronous
        }
        series.append((label, colour, [times.get(config, 0.0) for config in configs]))
    if configs:
        bars(axes, [str(config) for config in configs], series)
