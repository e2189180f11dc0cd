"""The figure of flashmob gpu figures: one panel for each sweep of the evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashmob.figure import (
    END_TO_END,
    MODEL_LINE,
    PROCESSING,
    SERIES,
    TARGET,
    bars,
    binary_label,
    figure,
    from_zero,
    heading,
    latency_ticks,
    load_axis,
    rate_label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from flashmob.gpu.evaluation import Run

    Runs = Sequence[Run]
    Limits = Mapping[str, Mapping[str, float]]

_MEDIA = (("host", "host memory", SERIES[0]), ("device", "GPU memory", SERIES[1]))


def draw_evaluation(runs: Runs, limits: Limits, path: Path, note: str) -> None:
    """Draws all sweeps into one file."""
    what = "" if limits else ", simulated: model behaviour, no speed of any GPU"
    with figure(3, 3, path, title=f"The SSD's engine on the GPU{what}", footnote=note) as (_, axes):
        _threads(axes[0][0], _of(runs, "threads"))
        _latency(axes[0][1], _of(runs, "threads"))
        _lateness(axes[0][2], runs)
        _targets(axes[1][0], runs)
        _ablation(axes[1][1], _of(runs, "ablation"))
        _queues(axes[1][2], _of(runs, "queues"))
        _block_sizes(axes[2][0], _of(runs, "block-sizes"))
        _bandwidth(axes[2][1], _of(runs, "block-sizes"), limits)
        _units(axes[2][2], runs)


def _of(runs: Runs, series: str) -> Runs:
    return sorted((run for run in runs if run.point.series == series), key=lambda run: run.point.x)


def _mega(runs: Runs) -> list[float]:
    return [run.result.iops / 1e6 for run in runs]


def _threads(axes: Axes, runs: Runs) -> None:
    heading(axes, "Rate against threads", "threads, one read each", "MIOPS")
    xs = [run.point.x for run in runs]
    axes.plot(xs, [(run.result.model_iops or 0) / 1e6 for run in runs], **MODEL_LINE, label="what the model gives")
    axes.plot(xs, _mega(runs), "o-", color=SERIES[0], label="reached")
    load_axis(axes, xs)
    from_zero(axes)
    axes.legend(loc="best")


def _latency(axes: Axes, runs: Runs) -> None:
    heading(axes, "Where the time goes", "threads", "mean latency")
    shown = [run for run in runs if run.result.target_ns and run.result.processing_ns]
    if not shown:
        return
    series = (
        ("target", TARGET, [run.result.target_ns.mean if run.result.target_ns else 0.0 for run in shown]),
        ("processing", PROCESSING, [run.result.processing_ns.mean if run.result.processing_ns else 0 for run in shown]),
        ("end to end", END_TO_END, [float(run.engine["latency_mean_ns"]) for run in shown]),
    )
    bars(axes, [binary_label(run.point.x) for run in shown], series)


def _lateness(axes: Axes, runs: Runs) -> None:
    from flashmob.canvas import label_axis

    heading(axes, "Completion after target, 99th percentile", "IOPS reached", "")
    for (name, label), colour in zip(
        (("threads", "2.47 M/s"), ("targets-host", "host memory"), ("targets-device", "GPU memory")),
        SERIES,
        strict=False,
    ):
        shown = [run for run in _of(runs, name) if run.result.lateness_ns]
        late = [run.result.lateness_ns.p99 for run in shown if run.result.lateness_ns]
        axes.plot([run.result.iops for run in shown], late, "o", color=colour, label=label)
    axes.axhline(2000, **MODEL_LINE)
    axes.set_xscale("log")
    axes.set_yscale("log")
    label_axis(axes.xaxis, rate_label, log=True)
    latency_ticks(axes.yaxis, log=True)
    axes.legend(loc="best")


def _targets(axes: Axes, runs: Runs) -> None:
    heading(axes, "Rate against target", "target, MIOPS", "MIOPS")
    asked: list[float] = []
    for media, label, colour in _MEDIA:
        all_runs = _of(runs, f"targets-{media}")
        shown = [run for run in all_runs if run.point.label != "unlimited"]
        asked = [run.point.x for run in shown]
        axes.plot(asked, _mega(shown), "o-", color=colour, label=label)
        for run in all_runs:
            if run.point.label == "unlimited":
                axes.axhline(run.result.iops / 1e6, color=colour, linestyle=":", label=f"{label}, no limit")
    axes.plot(asked, asked, **MODEL_LINE, label="as asked")
    load_axis(axes, asked, lambda target: f"{target:g}", log=False)
    from_zero(axes)
    axes.legend(loc="best")


def _ablation(axes: Axes, runs: Runs) -> None:
    heading(axes, "What each part brings", "", "MIOPS")
    drawn = axes.bar([run.point.label for run in runs], _mega(runs), color=SERIES[0], width=0.6)
    axes.bar_label(drawn, [f"{value:.3g}" for value in _mega(runs)], padding=2, fontsize=8)
    axes.tick_params(axis="x", labelrotation=20)
    axes.grid(visible=False, axis="x")


def _queues(axes: Axes, runs: Runs) -> None:
    heading(axes, "Rate against queues", "queue pairs", "MIOPS")
    axes.plot([run.point.x for run in runs], _mega(runs), "o-", color=SERIES[0])
    load_axis(axes, [run.point.x for run in runs])
    from_zero(axes)


def _block_sizes(axes: Axes, runs: Runs) -> None:
    heading(axes, "Rate against block size, host memory", "bytes", "MIOPS")
    axes.plot([run.point.x for run in runs], _mega(runs), "o-", color=SERIES[0])
    load_axis(axes, [run.point.x for run in runs])
    from_zero(axes)


def _bandwidth(axes: Axes, runs: Runs, limits: Limits) -> None:
    heading(axes, "Bandwidth against block size, host memory", "bytes", "GB/s")
    measured = limits.get("host", {})
    if not measured:
        axes.text(0.5, 0.5, "moving data takes no time on fibres", transform=axes.transAxes, ha="center")
        axes.set_xticks([])
        axes.set_yticks([])
        return
    xs = [run.point.x for run in runs]
    axes.plot(xs, [run.result.bw_bytes / 1e9 for run in runs], "o-", color=SERIES[0], label="the SSD")
    most = [measured[str(int(x))] / 1e9 for x in xs if str(int(x)) in measured]
    axes.plot(xs[: len(most)], most, **MODEL_LINE, label="copies alone")
    load_axis(axes, xs)
    from_zero(axes)
    axes.legend(loc="best")


def _units(axes: Axes, runs: Runs) -> None:
    share = any(run.engine.get("multiprocessor_share") for run in runs)
    heading(axes, "Rate against the engine's share", "share of multiprocessors" if share else "service units", "MIOPS")
    for media, label, colour in _MEDIA:
        shown = _of(runs, f"units-{media}")
        xs = [run.engine.get("multiprocessor_share") or run.point.x for run in shown]
        axes.plot(xs, _mega(shown), "o-", color=colour, label=label)
        load_axis(axes, xs, lambda units: f"{units:.3g}", log=False)
    from_zero(axes)
    axes.legend(loc="best")
