"""The panels of a figure of results: against load, one row per result, the distribution, and where the time goes.

Each takes matplotlib's Axes and an Arrangement, and is called within figure.style().
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from flashmob.figure import (
    END_TO_END,
    GRID,
    INK,
    MODEL_LINE,
    MUTED,
    PROCESSING,
    SERIES,
    TARGET,
    bandwidth_label,
    bars,
    blended,
    heading,
    latency_label,
    load_axis,
    rate_label,
)
from flashmob.plot_series import Arrangement, Axis, Getter, Point, Series, Spread
from flashmob.plot_values import (
    beyond_target,
    latency,
    mean_of,
    mixed,
    model_latency,
    model_rate,
    number,
    off_model,
    rate,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = ("o", "s", "^", "D", "v", "P")
READ_STYLE: Any = (0, (6, 2))
WRITE_STYLE: Any = (0, (6, 2, 1.5, 2))
DIRECTION_STYLES = {"": "-", "read": READ_STYLE, "write": WRITE_STYLE}
# Bars for more points than this are too thin to compare.
_MOST_BARS = 12
_LONGEST_NAME = 32


@dataclass(frozen=True, slots=True)
class Look:
    """How a series is drawn: its colour and its marker, so that neither alone has to tell it."""

    colour: str
    marker: str


def look(index: int) -> Look:
    """Six colours; after each round of them the markers move on by one."""
    return Look(SERIES[index % len(SERIES)], _MARKERS[(index + index // len(SERIES)) % len(_MARKERS)])


def model_line(index: int, count: int) -> dict[str, Any]:
    """How the model of one of `count` series is drawn: where there are several, in a darker shade of its colour."""
    return MODEL_LINE if count < 2 else MODEL_LINE | {"color": blended(look(index).colour, INK, 0.5)}


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure to draw against load: of the whole run or of one direction, and the model's."""

    title: str
    kind: str
    get: Callable[[str], Getter]
    model: Getter


METRICS = {
    "iops": Metric("Rate", "IOPS", lambda way: rate("iops", way), model_rate("iops")),
    "bandwidth": Metric("Bandwidth", "bandwidth", lambda way: rate("bw_bytes", way), model_rate("bw_bytes")),
    "mean": Metric("Mean latency", "latency", lambda way: latency("mean", way), model_latency("mean")),
    "p99": Metric("p99 latency", "latency", lambda way: latency("p99", way), model_latency("p99")),
    "p999": Metric("p99.9 latency", "latency", lambda way: latency("p999", way), model_latency("p999")),
}
_TICKS = {"IOPS": rate_label, "bandwidth": bandwidth_label, "latency": latency_label}

# x, the figure there, and the verdict on the runs behind it.
_Placed = Sequence[tuple[float, Spread, str]]


def placed(points: Sequence[Point], get: Getter) -> list[tuple[float, Spread, str]]:
    """Where the points lie; those without the figure are left out."""
    return [(point.x, spread, point.verdict) for point in points if (spread := point.spread(get)) is not None]


def marker_style(verdict: str, colour: str) -> dict[str, Any]:
    """How a marker shows the verdict: filled where the run can be believed, open where it cannot or need not."""
    style: dict[str, Any] = {"markeredgecolor": colour, "markeredgewidth": 1.4, "color": colour}
    if verdict == "VALID":
        return style | {"markerfacecolor": colour}
    if verdict in ("INVALID", "NONE"):
        return style | {"markerfacecolor": "white"}
    half = "left" if verdict.startswith("VALID") else "bottom"
    return style | {"fillstyle": half, "markerfacecolor": colour, "markerfacecoloralt": "white"}


def mark(axes: Axes, xs: Sequence[float], ys: Sequence[float], verdict: str, shown: Look) -> None:
    """Markers of one verdict; INVALID ones are crossed out."""
    style = marker_style(verdict, shown.colour)
    axes.plot(xs, ys, shown.marker, linestyle="none", label=f"_{verdict}", zorder=4, clip_on=False, **style)
    if verdict == "INVALID":
        axes.plot(xs, ys, "x", color=INK, markersize=3.5, linestyle="none", label="_crossed", zorder=4.5, clip_on=False)


def _marks(axes: Axes, where: _Placed, shown: Look) -> None:
    for verdict in dict.fromkeys(place[2] for place in where):
        chosen = [(x, spread.middle) for x, spread, its in where if its == verdict]
        mark(axes, [x for x, _ in chosen], [y for _, y in chosen], verdict, shown)


def _line(axes: Axes, where: _Placed, label: str, **style: Any) -> None:
    """Joins neighbours; the way to and from an INVALID run is only hinted at."""
    sound: list[tuple[float, float]] = []
    doubtful: list[tuple[float, float]] = []
    gap = (float("nan"), float("nan"))
    for (x, spread, verdict), (next_x, next_spread, next_verdict) in pairwise(where):
        kind = doubtful if "INVALID" in (verdict, next_verdict) else sound
        kind += [(x, spread.middle), (next_x, next_spread.middle), gap]
    if sound:
        axes.plot(*zip(*sound, strict=True), label=label, **style)
    if doubtful:
        faint = style | {"linestyle": (0, (1, 2)), "linewidth": 1.1, "alpha": 0.7}
        axes.plot(*zip(*doubtful, strict=True), label="_doubtful", **faint)


def _repeats(axes: Axes, points: Sequence[Point], get: Getter, colour: str) -> None:
    """Of points measured several times: every run as a dot, and a bar from the least to the most."""
    for point in points:
        spread = point.spread(get)
        if len(point.runs) < 2 or spread is None:
            continue
        values = [value for run in point.runs if (value := get(run)) is not None]
        axes.plot([point.x] * len(values), values, ".", color=colour, alpha=0.5, markersize=4, label="_run")
        reach = [[spread.middle - spread.low], [spread.high - spread.middle]]
        axes.errorbar([point.x], [spread.middle], yerr=reach, fmt="none", ecolor=colour, elinewidth=1.2, capsize=3)


def directions(series: Series) -> tuple[str, ...]:
    """The whole, and reads and writes where some run had both."""
    return ("", "read", "write") if any(mixed(run) for run in series.runs) else ("",)


def against_load(axes: Axes, shown: Arrangement, metric: Metric) -> None:
    """One metric of all series against the axis, the model's beside it."""
    assert shown.axis is not None
    heading(axes, metric.title, "", metric.kind)
    values: list[float] = []
    for index, series in enumerate(shown.series):
        appearance = look(index)
        if modelled := placed(series.points, metric.model):
            xs, ys = [place[0] for place in modelled], [place[1].middle for place in modelled]
            values += ys
            lone: dict[str, Any] = {"marker": "_", "markersize": 13} if len(xs) == 1 else {}
            axes.plot(xs, ys, label="_model", **model_line(index, len(shown.series)), **lone)
        for way in directions(series):
            where = placed(series.points, metric.get(way))
            values += [bound for _, spread, _ in where for bound in (spread.low, spread.high)]
            thin: dict[str, Any] = {"linestyle": DIRECTION_STYLES[way], "linewidth": 1.8 if way == "" else 1.2}
            _line(axes, where, f"_{series.label} {way}".strip(), color=appearance.colour, **thin)
            if way == "":
                _repeats(axes, series.points, metric.get(way), appearance.colour)
                _marks(axes, where, appearance)
            elif len(where) == 1:
                axes.plot([where[0][0]], [where[0][1].middle], "_", color=appearance.colour, label=f"_{way}")
    load(axes, shown.axis, shown)
    value_axis(axes, metric.kind, values)


def load(axes: Axes, axis: Axis, shown: Arrangement) -> None:
    """The axis of loads, its ticks at the loads that were measured."""
    xs = [point.x for series in shown.series for point in series.points]
    log = axis.scale == "log2" and min(xs) > 0 and max(xs) >= 4 * min(xs)
    axes.set_xlabel(axis.label)
    load_axis(axes, xs, axis.text, log=log)


def value_axis(axes: Axes, kind: str, values: Sequence[float]) -> None:
    """Rates from zero, latencies on a logarithmic axis, both with units at each tick."""
    from flashmob.canvas import label_axis

    positive = [value for value in values if value > 0]
    if not positive:
        say_empty(axes)
        return
    log = kind == "latency" or max(positive) > 1000 * min(positive)
    if log:
        axes.set_yscale("log")
        axes.set_ylim(*padded(min(positive), max(positive)))
    else:
        axes.set_ylim(0, 1.08 * max(positive))
    label_axis(axes.yaxis, _TICKS[kind], log=log)


def padded(low: float, high: float) -> tuple[float, float]:
    """Ends of a logarithmic axis around values: with a margin, and wide enough that a percent looks like one."""
    if high < 1.5 * low:
        middle = (low * high) ** 0.5
        return middle / 1.3, middle * 1.3
    margin = (high / low) ** 0.06
    return low / margin, high * margin


def say_empty(axes: Axes, words: str = "not in these results") -> None:
    """Says that there is nothing to draw, instead of an empty panel."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=INK)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)


OFF_FIGURES = (
    ("rate", "-", rate("iops"), model_rate("iops")),
    ("mean latency", (0, (6, 2)), latency("mean"), model_latency("mean")),
    ("p99 latency", (0, (1, 1.2)), latency("p99"), model_latency("p99")),
)


def off_the_model(axes: Axes, shown: Arrangement) -> None:
    """How far rate, mean and p99 lie from the model's, in percent of it."""
    assert shown.axis is not None
    heading(axes, "Off the model", "", "measured against the model, %")
    most = highest = 0.0
    for name, line, measured, model in OFF_FIGURES:
        for index, series in enumerate(shown.series):
            where = placed(series.points, off_model(measured, model))
            if not where:
                continue
            most = max(most, *(abs(spread.middle) for _, spread, _ in where))
            highest = max(highest, *(spread.middle for _, spread, _ in where))
            xs, ys = [place[0] for place in where], [place[1].middle for place in where]
            appearance = look(index)
            axes.plot(xs, ys, linestyle=line, color=appearance.colour, marker=".", linewidth=1.5, label=f"_{name}")
            if not any(text == name for text in axes.get_legend_handles_labels()[1]):
                axes.plot([], [], linestyle=line, color=MUTED, linewidth=1.5, label=name)
    axes.axhline(0, color=INK, linewidth=1.0, zorder=1)
    shares = [share for run in shown.runs if (share := number(run, "tolerance", "iops_share"))]
    if shares:
        most = max(most, 100 * max(shares))
        axes.axhspan(
            -100 * max(shares), 100 * max(shares), color=GRID, alpha=0.6, zorder=0, label="allowed for the rate"
        )
    if most > 50:
        axes.set_yscale("symlog", linthresh=5, linscale=0.7)
        ticks = [sign * size for size in (5, 20, 100, 1000, 10_000, 100_000) if size < 2 * most for sign in (-1, 1)]
        axes.set_yticks(sorted({0, *(tick for tick in ticks if tick >= -100)}))
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:+,.0f}" if value else "0")
        # Nothing lies below -100 %: there is the legend's place, two fifths of what is above it.
        top = 2 * max(highest, 20.0)
        axes.set_ylim(-100 * 10 ** (0.4 * (2 + 0.7 + math.log10(top / 5))), top)
    else:
        reach = max(1.25 * most, 1.0)
        axes.set_ylim(-1.7 * reach, reach)
    axes.legend(loc="lower left", ncols=2)
    load(axes, shown.axis, shown)


def where_time_goes(axes: Axes, shown: Arrangement) -> None:
    """Mean target, processing and end-to-end latency as bars (SwarmIO's figure 11), or what was added as curves."""
    names = [name for name, _ in shown.points]
    if len(shown.series) == 1 and shown.axis is not None:
        names = [shown.axis.text(point.x) for _, point in shown.points]
    if shown.axis is None or (len(names) <= _MOST_BARS and max(map(len, names)) <= _LONGEST_NAME):
        heading(axes, "Where the time goes", shown.axis.label if shown.axis else "", "mean latency")
        bars(axes, names if shown.axis else [""], breakdown_values([point for _, point in shown.points]))
    else:
        heading(axes, "Beyond the model's target", "", "added to the mean")
        values: list[float] = []
        for index, series in enumerate(shown.series):
            where = placed(series.points, beyond_target)
            values += [spread.middle for _, spread, _ in where]
            _line(axes, where, f"_{series.label}", color=look(index).colour, linewidth=1.8)
            _marks(axes, where, look(index))
        load(axes, shown.axis, shown)
        if values:
            value_axis(axes, "latency", values)
        else:
            say_empty(axes, "nothing was added")


def breakdown_values(points: Sequence[Point]) -> list[tuple[str, str, list[float]]]:
    """(label, colour, a mean per point) of target, processing and end to end; 0 where it is not known."""
    kinds = (("target", TARGET, "target_ns"), ("processing", PROCESSING, "processing_ns"))
    series = []
    for label, colour, name in (*kinds, ("end to end", END_TO_END, "latency_ns")):
        spreads = [point.spread(mean_of(name)) for point in points]
        series.append((label, colour, [spread.middle if spread else 0.0 for spread in spreads]))
    return series
