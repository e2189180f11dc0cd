"""The figure of flashmob sweep: SwarmIO's figures 5, 10, 11 and 12, of devices that are emulated in virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashmob.figure import (
    END_TO_END,
    INK,
    MODEL_LINE,
    MUTED,
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
from flashmob.sweep_points import D7_IOPS, FIO_QUEUES, QUEUES, Point, model_iops

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What the paper reports (arXiv:2604.06668, sections III-B and VI-B), to set beside what is found here.
NVMEVIRT_PEAK_IOPS = 0.13e6
SWARMIO_HELD_IOPS = 40e6
_TARGET_CURVES = (1 << 18, 1 << 14, 1 << 12, 1 << 10)


def draw_sweep(results: dict[Point, Result], path: Path) -> None:
    """The four panels."""
    gpu = [point for point in results if point.queues == QUEUES and point.target_iops == D7_IOPS]
    gpu.sort(key=lambda point: point.requesters)
    fio = sorted((point for point in results if point.queues == FIO_QUEUES), key=lambda point: point.requesters)
    note = (
        "Virtual time, whole device: 512 B random reads, 256 queues of 1024 entries. Beyond the rings' 256K slots "
        "requesters wait for one.\n"
        "D7-PS1010: 50 µs and 2.47 MIOPS, as SwarmIO (arXiv:2604.06668) measured; its figures have the same axes."
    )
    with figure(2, 2, path, title="An emulated SSD under GPU-like load", footnote=note) as (_, axes):
        _latency(axes[0][0], gpu, results)
        _rate(axes[0][1], gpu, fio, results)
        _breakdown(axes[1][0], gpu, results)
        _targets(axes[1][1], results)


def _means(points_: Iterable[Point], results: dict[Point, Result], figures: str) -> list[float]:
    return [getattr(results[point], figures).mean for point in points_]


def _cross_out(axes: Axes, where: Iterable[tuple[float, float, Result]]) -> None:
    """Crosses out what is INVALID, as flashmob plot does; where each result lies comes before it."""
    crossed = [(x, y) for x, y, result in where if result.verdict == "INVALID"]
    if crossed:
        axes.plot(*zip(*crossed, strict=True), "x", color=INK, markersize=7, label="INVALID", zorder=5)


def _latency(axes: Axes, gpu: Sequence[Point], results: dict[Point, Result]) -> None:
    heading(axes, "Latency of a D7-PS1010 (fig. 5a)", "requesters", "mean latency")
    counts = [point.requesters for point in gpu]
    model = [count / model_iops(D7_IOPS, count) * 1e9 for count in counts]
    axes.plot(counts, _means(gpu, results, "latency_ns"), "o-", color=SERIES[0], label="end to end")
    axes.plot(counts, model, **MODEL_LINE, label="model: requesters / rate (Little)")
    _cross_out(axes, ((point.requesters, results[point].latency_ns.mean, results[point]) for point in gpu))
    axes.set_yscale("log")
    latency_ticks(axes.yaxis, log=True)
    load_axis(axes, counts)
    axes.legend(loc="upper left")


def _rate(axes: Axes, gpu: Sequence[Point], fio: Sequence[Point], results: dict[Point, Result]) -> None:
    heading(axes, "Rate of a D7-PS1010 (fig. 5b, 10)", "requests in flight", "MIOPS")
    for group, colour, label in (
        (gpu, SERIES[0], "256 queues, GPU-like"),
        (fio, SERIES[1], "32 queues, fio-like"),
    ):
        rates = [results[point].iops / 1e6 for point in group]
        counts = [point.requesters for point in group]
        axes.plot(counts, rates, "o-", color=colour, label=label)
    _cross_out(axes, ((point.requesters, results[point].iops / 1e6, results[point]) for point in (*gpu, *fio)))
    counts = sorted({point.requesters for point in (*gpu, *fio)})
    axes.plot(counts, [model_iops(D7_IOPS, count) / 1e6 for count in counts], **MODEL_LINE, label="model")
    axes.axhline(NVMEVIRT_PEAK_IOPS / 1e6, color=SERIES[3], linewidth=1.2)
    axes.annotate(
        "NVMeVirt's peak under a GPU, 0.13 (SwarmIO, section III-B)",
        (counts[-1], NVMEVIRT_PEAK_IOPS / 1e6),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color=SERIES[3],
    )
    axes.set_ylim(0, D7_IOPS / 1e6 * 1.15)
    load_axis(axes, counts)
    axes.legend(loc="center right")


def _breakdown(axes: Axes, gpu: Sequence[Point], results: dict[Point, Result]) -> None:
    heading(axes, "Target, processing, end to end (fig. 11)", "requesters", "mean latency")
    shown = gpu[1::2] if len(gpu) > 6 else gpu
    bars(
        axes,
        [binary_label(point.requesters) + "\nINVALID" * (results[point].verdict == "INVALID") for point in shown],
        (
            ("target", TARGET, _means(shown, results, "target_ns")),
            ("processing", PROCESSING, _means(shown, results, "processing_ns")),
            ("end to end", END_TO_END, _means(shown, results, "latency_ns")),
        ),
    )


def _targets(axes: Axes, results: dict[Point, Result]) -> None:
    heading(axes, "Sustained rate against target (fig. 12b)", "target (MIOPS)", "sustained (MIOPS)")
    gpu = [point for point in results if point.queues == QUEUES]
    end = max(point.target_iops for point in gpu) / 1e6
    axes.axvspan(SWARMIO_HELD_IOPS / 1e6, end * 1.04, color="#f3f4f6", zorder=0)
    axes.annotate(
        "beyond what SwarmIO held\non its machine (40)",
        (SWARMIO_HELD_IOPS / 1e6, 0),
        xytext=(6, 6),
        textcoords="offset points",
        fontsize=8,
        color=MUTED,
    )
    counts = sorted({point.requesters for point in gpu}, reverse=True)
    shown = [count for count in counts if count in _TARGET_CURVES]
    for index, count in enumerate(shown):
        # Curves that lie on each other show as rims around the ones above.
        line = sorted((point for point in gpu if point.requesters == count), key=lambda point: point.target_iops)
        axes.plot(
            [point.target_iops / 1e6 for point in line],
            [results[point].iops / 1e6 for point in line],
            "o-",
            color=SERIES[index],
            label=f"{binary_label(count)} requesters",
            linewidth=5.5 - 1.2 * index,
            markersize=9.0 - 1.5 * index,
        )
    drawn = [point for point in gpu if point.requesters in shown]
    _cross_out(axes, ((point.target_iops / 1e6, results[point].iops / 1e6, results[point]) for point in drawn))
    axes.plot([0, end], [0, end], **MODEL_LINE, label="sustained = target")
    axes.set_xlim(0, end * 1.04)
    axes.set_ylim(0, end * 1.08)
    axes.legend(loc="upper left")
