"""One command that reproduces the shape of SwarmIO's figures 5, 10, 11 and 12, in virtual time.

The load is that of the paper's GPU experiments: 512 B random reads from closed-loop requesters over 256 queues whose
rings have 1024 entries. Each point is a run of the whole device; results go to sweep.jsonl, the figure beside it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flashmob.figure import (
    END_TO_END,
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
from flashmob.units import format_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

D7_IOPS = 2.47e6
D7_LATENCY_NS = 50_000
QUEUES = 256
# A ring of 1024 entries holds 1023 commands.
DEPTH, ENTRIES = 1023, 1024
# The paper's fio runs: 32 threads, a queue each.
FIO_QUEUES = 32
_MOST_REQUESTERS = 2 << 20
# What the paper reports (arXiv:2604.06668, sections III-B and VI-B), to set beside what is found here.
NVMEVIRT_PEAK_IOPS = 0.13e6
SWARMIO_HELD_IOPS = 40e6
_TARGET_CURVES = (1 << 18, 1 << 14, 1 << 12, 1 << 10)


@dataclass(frozen=True, slots=True)
class Point:
    """One run: a device of a given rate under a given number of requesters or commands per queue."""

    target_iops: float
    requesters: int
    queues: int = QUEUES

    @property
    def instances(self) -> int:
        """One server where it can be as fast as asked within the latency; eight for the fast devices' whole ns."""
        return 1 if self.target_iops < 5e6 else 8

    @property
    def ios(self) -> int:
        """Measured requests: enough for a steady mean, and one round of all requesters."""
        return max(200_000, min(self.requesters, _MOST_REQUESTERS))

    @property
    def ramp_ns(self) -> int:
        """Until the first round of all requesters is over, and a latency more."""
        return int(1.1 * self.requesters / self.target_iops * 1e9) + 2 * D7_LATENCY_NS

    def options(self) -> dict[str, Any]:
        """Keyword arguments of flashmob.bench()."""
        return {
            "rw": "randread",
            "bs": 512,
            "queues": self.queues,
            "queue_depth": DEPTH,
            "queue_entries": ENTRIES,
            "requesters": self.requesters,
            "ios": self.ios,
            "ramp_ns": self.ramp_ns,
            "clock": "virtual",
            "media": "generated",
            "size": "64G",
            "verify": 0,
            "fill": False,
            "seed": 7,
            "command": "flashmob sweep",
            "set": {
                "timing.read_iops": self.target_iops,
                "timing.write_iops": self.target_iops,
                "timing.read_latency_ns": D7_LATENCY_NS,
                "timing.instances": self.instances,
                "timing.unit_bytes": 512,
                "controller.max_queue_pairs": QUEUES,
            },
        }


def points(quick: bool) -> list[Point]:
    """All runs, the longest first, so that two processes end together."""
    powers = range(10, 22, 4) if quick else range(10, 22)
    requesters = [1 << power for power in powers]
    targets = [D7_IOPS, 100e6] if quick else [D7_IOPS, 5e6, 10e6, 20e6, 40e6, 60e6, 80e6, 100e6]
    runs = [Point(target, count) for target in targets for count in requesters]
    depths = (1, 64) if quick else (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    runs += [Point(D7_IOPS, FIO_QUEUES * depth, FIO_QUEUES) for depth in depths]
    return sorted(runs, key=lambda point: -(point.requesters + point.ios))


def run_point(point: Point) -> str:
    """Runs one point; the result's JSON on one line."""
    from flashmob.runner import bench

    return bench("d7-ps1010", **point.options()).to_json(indent=None)


def run_sweep(out: Path, *, jobs: int | None, quick: bool, console: Console) -> None:
    """Runs all points, `jobs` at a time, and writes sweep.jsonl, sweep.svg and sweep.png into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    started_s = time.monotonic()
    todo = points(quick)
    workers = jobs or len(os.sched_getaffinity(0))
    results: dict[Point, Result] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
    ):
        task = progress.add_task("virtual runs", total=len(todo))
        pending: dict[Future[str], Point] = {pool.submit(run_point, point): point for point in todo}
        try:
            while pending:
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    results[pending.pop(future)] = Result.from_json(future.result())
                    progress.advance(task)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    write_lines(out / "sweep.jsonl", results)
    simulated = sum(result.ios for result in results.values())
    elapsed_s = time.monotonic() - started_s
    drawn = []
    for name in ("sweep.svg", "sweep.png"):
        draw_sweep(results, out / name)
        drawn.append(str(out / name))
    rate = format_rate(simulated / elapsed_s, " requests/s")
    console.print(f"{len(results)} runs, {simulated:,} requests in {elapsed_s:.0f} s ({rate})", highlight=False)
    console.print(f"results in {out / 'sweep.jsonl'}, figures in {' and '.join(drawn)}", highlight=False)


def write_lines(path: Path, results: dict[Point, Result]) -> None:
    """One result per line, in an order that does not depend on which run ended first."""
    ordered = sorted(results, key=lambda point: (point.queues, point.target_iops, point.requesters))
    lines = [json.dumps(results[point].to_dict()) for point in ordered]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def model_iops(target_iops: float, requesters: float, latency_ns: float = D7_LATENCY_NS) -> float:
    """Closed loop: each requester has one request per latency, up to the device's rate (Little's law)."""
    return min(target_iops, requesters / latency_ns * 1e9)


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


def _latency(axes: Axes, gpu: Sequence[Point], results: dict[Point, Result]) -> None:
    heading(axes, "Latency of a D7-PS1010 (fig. 5a)", "requesters", "mean latency")
    counts = [point.requesters for point in gpu]
    model = [count / model_iops(D7_IOPS, count) * 1e9 for count in counts]
    axes.plot(counts, _means(gpu, results, "latency_ns"), "o-", color=SERIES[0], label="end to end")
    axes.plot(counts, model, **MODEL_LINE, label="model: requesters / rate (Little)")
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
        [binary_label(point.requesters) for point in shown],
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
    axes.plot([0, end], [0, end], **MODEL_LINE, label="sustained = target")
    axes.set_xlim(0, end * 1.04)
    axes.set_ylim(0, end * 1.08)
    axes.legend(loc="upper left")
