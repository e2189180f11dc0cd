"""Panels of results that share no axis: a row for each, and the distribution of all of them.

Each takes matplotlib's Axes and an Arrangement, and is called within figure.style().
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flashmob.figure import (
    DIRECTION_COLOURS,
    GRID,
    INK,
    MODEL_LINE,
    SERIES,
    blended,
    folded,
    heading,
    latency_label,
    latency_ticks,
    rate_label,
)
from flashmob.plot_panels import DIRECTION_STYLES, breakdown_values, directions, look, padded, say_empty
from flashmob.plot_series import Arrangement, Point, Series
from flashmob.plot_values import Curve, curve, latency, mixed, model_curve, model_latency, model_rate, rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The figures of a row of latencies: result's name, legend, marker, colour, and how far below the row's middle.
_FIGURES = (
    ("mean", "mean", "o", SERIES[0], -0.24),
    ("p99", "p99", "s", SERIES[1], -0.08),
    ("p999", "p99.9", "D", SERIES[2], 0.08),
    ("max", "max", ">", SERIES[3], 0.24),
)
# A legend of more curves than this names the ends of each series, in columns of this many, and not all of very many.
_MOST_NAMED = 14
_MOST_SERIES_NAMED = 3 * _MOST_NAMED
# Of more runs than this the distribution shows neither reads and writes by themselves nor marks at percentiles.
_MOST_DETAILED = 6
_LINE_INCHES = 0.165  # of a row's words
# The ticks of the distribution; the panel ends with the last one that the number of requests supports.
_NINES = (1.0, 0.5, 0.1, *(10.0**-power for power in range(2, 12)))

Rows = Sequence[tuple[str, Point, str]]


def rows(shown: Arrangement) -> Rows:
    """(words, point, direction) from top to bottom; reads and writes follow the whole where a run had both."""
    points = [(series.label, point) for series in shown.series for point in series.points]
    return [
        (f"{way}s" if way else label, point, way) for label, point in points for way in directions(Series("", (point,)))
    ]


def row_inches(shown: Rows) -> float:
    """How high a row must be for its words, which may take several lines, not to lie over those of the next."""
    deepest = max((folded(row[0]).count("\n") + 1 for row in shown), default=1)
    return max(0.3, 0.12 + _LINE_INCHES * deepest)


def legend_inches(shown: Arrangement) -> float:
    """How high the distribution's legend is, with the panel's title and axis beside it."""
    many = len(shown.runs) > _MOST_DETAILED
    labels = [
        words
        for (_, point), words in zip(shown.points, _told(shown), strict=True)
        for _ in range(3 if words and not many and any(map(mixed, point.runs)) else 1)
        if words
    ]
    labels += [""] * 2  # the axis' name, and the model
    return 1.0 + sum(map(entry_inches, labels)) / _legend_columns(len(labels))


def entry_inches(label: str) -> float:
    """How high a legend's entry is, with what is between it and the next."""
    return 0.07 + 0.145 * (label.count("\n") + 1)


def _legend_columns(entries: int) -> int:
    return min(3, -(-max(1, entries) // _MOST_NAMED))


def _names(axes: Axes, shown: Rows, *, named: bool) -> None:
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_yticks(range(len(shown)), [folded(row[0]) for row in shown] if named else [""] * len(shown))
    axes.grid(visible=False, axis="y")
    if any(way for _, _, way in shown):  # A line above each result, so that its reads and writes stay with it.
        for index, (_, _, way) in enumerate(shown):
            if index and way == "":
                axes.axhline(index - 0.5, color=GRID, linewidth=1.0, zorder=0, label="_between")


def _legend_below(axes: Axes, shown: Rows) -> None:
    """Under the ticks, however high the panel is."""
    below = 0.3 / max(1.8, row_inches(shown) * len(shown))
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -below),
        ncols=4,
        columnspacing=1.0,
        handletextpad=0.4,
        borderaxespad=0.0,
    )


def bar_style(verdict: str, colour: str) -> dict[str, Any]:
    """How a bar shows the verdict: filled where the run can be believed, hatched where it cannot."""
    if verdict == "VALID":
        return {"facecolor": colour, "edgecolor": colour}
    if verdict.startswith("VALID"):
        return {"facecolor": colour, "edgecolor": colour, "alpha": 0.5}
    hatch = {"INVALID": "////", "NONE": ""}.get(verdict, "....")
    return {"facecolor": "white", "edgecolor": colour, "hatch": hatch}


def rate_rows(axes: Axes, shown: Rows) -> None:
    """Bars of rates, the model's as a tick on each."""
    from flashmob.canvas import label_axis

    heading(axes, "Rate", "IOPS", "")
    most = 0.0
    for index, (_, point, way) in enumerate(shown):
        spread = point.spread(rate("iops", way))
        if spread is None:
            continue
        high = 0.62 if way == "" else 0.4
        bar = bar_style(point.verdict, DIRECTION_COLOURS[way])
        axes.barh([index], [spread.middle], height=high, label=f"_{point.verdict}", **bar)
        if len(point.runs) > 1:
            reach = [[spread.middle - spread.low], [spread.high - spread.middle]]
            axes.errorbar([spread.middle], [index], xerr=reach, fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
        model = point.spread(model_rate("iops")) if way == "" else None
        if model:
            axes.plot([model.middle], [index], "|", color=INK, markersize=13, markeredgewidth=1.6, label="_model")
        end = max(spread.high, model.middle if model else 0.0)
        most = max(most, end)
        times = f"  ×{len(point.runs)}" if len(point.runs) > 1 and way == "" else ""
        off = model is not None and abs(spread.middle - model.middle) > 0.005 * model.middle
        beside = f" (model {rate_label(model.middle, 4)})" if model and off else ""
        words = f"{rate_label(spread.middle, 4)}{beside}{times}"
        axes.annotate(words, (end, index), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8)
    _names(axes, shown, named=True)
    axes.set_xlim(0, 1.55 * most if most else 1.0)
    label_axis(axes.xaxis, rate_label, log=False)


def latency_rows(axes: Axes, shown: Rows) -> None:
    """Mean and tail of each row, the model's as ticks."""
    heading(axes, "Latency, mean and tail", "", "")
    values: list[float] = []
    for name, label, marker, colour, below in _FIGURES:
        places = [
            (spread.middle, index + below)
            for index, (_, point, way) in enumerate(shown)
            if (spread := point.spread(latency(name, way))) is not None
        ]
        if not places:
            continue
        values += [place[0] for place in places]
        axes.plot(*zip(*places, strict=True), marker, color=colour, linestyle="none", label=label, zorder=4)
        modelled = [
            (spread.middle, index + below)
            for index, (_, point, way) in enumerate(shown)
            if way == "" and (spread := point.spread(model_latency(name))) is not None
        ]
        if modelled and name != "max":
            values += [place[0] for place in modelled]
            axes.plot(*zip(*modelled, strict=True), "|", color=INK, markersize=9, label=f"_model {label}", zorder=3)
    _names(axes, shown, named=False)
    if not values:
        say_empty(axes, "no request was completed")
        return
    axes.set_xscale("log")
    axes.set_xlim(*padded(min(values), max(values)))
    latency_ticks(axes.xaxis, log=True)
    _legend_below(axes, shown)


def breakdown_rows(axes: Axes, shown: Rows) -> None:
    """Mean target, processing and end-to-end latency of each row."""
    heading(axes, "Where the time goes, mean", "", "")
    series = breakdown_values([point for _, point, _ in shown])
    whole = [way == "" for _, _, way in shown]
    positive = [value for _, _, values in series for value in values if value > 0]
    for place, (label, colour, values) in enumerate(series):
        ends = [value if there else 0.0 for value, there in zip(values, whole, strict=True)]
        spots = [row + (place - 1) * 0.24 for row in range(len(shown))]
        axes.barh(spots, ends, height=0.22, color=colour, label=label)
    _names(axes, shown, named=False)
    if not positive:
        say_empty(axes, "no request was completed")
        return
    log = max(positive) > 12 * min(positive)
    if log:
        axes.set_xscale("log")
    axes.set_xlim(min(positive) / 2.5 if log else 0, max(positive) * (2 if log else 1.08))
    latency_ticks(axes.xaxis, log=log)
    _legend_below(axes, shown)


def distribution(axes: Axes, shown: Arrangement) -> None:
    """Latency against percentile, each further nine as wide as the last; one curve for every run."""
    heading(axes, "Distribution of latencies", "percentile", "latency")
    points = [point for _, point in shown.points]
    count = len(shown.runs)
    detailed = count <= _MOST_DETAILED
    drawn: list[Curve] = []
    for point, colour, marker, told in zip(points, _colours(shown), _markers(shown), _told(shown), strict=True):
        for turn, run in enumerate(point.runs):
            wrong = run.verdict == "INVALID"
            words = f"{told} (INVALID)" if wrong else told
            label = words if told and turn == 0 else "_run"
            line = {"linestyle": ":" if wrong else "-"} | marker
            drawn.append(_curve(axes, curve(run), label, colour, line, marks=detailed))
            for way in ("read", "write") if mixed(run) and detailed else ():
                label = f"{told}, {way}s" if turn == 0 else "_run"
                line = {"linestyle": DIRECTION_STYLES[way]}
                drawn.append(_curve(axes, curve(run, way), label, colour, line, marks=False))
    drawn += _models(axes, shown) if count <= 3 else []
    places = [place for curve_ in drawn for place in curve_.points]
    if not places:
        say_empty(axes, "no request was completed")
        return
    deepest = min(above for above, _ in places)
    axes.set_xscale("log")
    axes.set_xlim(1.0, min(deepest, 0.5) / 1.3)
    ticks = [above for above in _NINES if above >= deepest * 0.999] or [1.0]
    axes.set_xticks(ticks, [percentile_label(above) for above in ticks])
    axes.set_yscale("log")
    axes.set_ylim(*padded(min(ns for _, ns in places), max(ns for _, ns in places)))
    axes.minorticks_off()
    latency_ticks(axes.yaxis, log=True)
    handles, _ = axes.get_legend_handles_labels()
    if len(handles) > 1:
        said = shown.axis.label if shown.axis else None
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(1.005, 1.0),
            borderaxespad=0.0,
            title=said,
            alignment="left",
            handlelength=3,
            ncols=_legend_columns(len(handles)),
        )


def _models(axes: Axes, shown: Arrangement) -> list[Curve]:
    """The models' curves, each in a darker shade of its run's colour where there are several."""
    points = [point for _, point in shown.points]
    placed = [
        (found, colour)
        for point, colour in zip(points, _colours(shown), strict=True)
        for run in point.runs
        if (found := model_curve(run)).points
    ]
    for index, (model, colour) in enumerate(placed):
        line = MODEL_LINE | ({"color": blended(colour, INK, 0.5)} if len(points) > 1 else {})
        axes.plot(*zip(*model.points, strict=True), label="_model" if index else "the model", **line)
    return [model for model, _ in placed]


def _curve(axes: Axes, found: Curve, label: str, colour: str, line: dict[str, Any], *, marks: bool) -> Curve:
    if found.points:
        how = {"marker": "." if len(found.points) == 1 else "", "linewidth": 1.6} | line
        axes.plot(*zip(*found.points, strict=True), color=colour, label=label, **how)
    if marks and found.named:
        named = [(above, min(ns, found.points[-1][1])) for above, ns in found.named]
        axes.plot(*zip(*named, strict=True), ".", color=colour, markersize=6, label="_percentiles")
    return found


def percentile_label(above: float) -> str:
    """0.001 -> "p99.9"; all requests lie above the least."""
    return "min" if above >= 1 else f"p{100 * (1 - above):.10g}"


def _told(shown: Arrangement) -> list[str]:
    """What the legend says of each point; empty where it says nothing."""
    words = []
    count = len(shown.points)
    step = -(-len(shown.series) // _MOST_SERIES_NAMED)
    for place, series in enumerate(shown.series):
        ends = (0, len(series.points) - 1) if 2 * len(shown.series) <= _MOST_SERIES_NAMED else (0,)
        for index, point in enumerate(series.points):
            where = shown.axis.text(point.x) if shown.axis else ""
            parts = [series.label, where] if len(shown.series) > 1 else [where or series.label]
            told = count <= _MOST_NAMED or (place % step == 0 and index in ends)
            words.append(folded(", ".join(part for part in parts if part)) if told else "")
    return words


def _colours(shown: Arrangement) -> list[str]:
    """One per point: along the axis from light to dark, or those of the series."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    def ramp(count: int) -> list[str]:
        return [to_hex(colormaps["viridis"](0.88 * (1 - index / max(count - 1, 1)))) for index in range(count)]

    if shown.axis is None:
        count = len(shown.series)
        return [look(index).colour for index in range(count)] if count <= len(SERIES) else ramp(count)
    if len(shown.series) == 1:
        return ramp(len(shown.series[0].points))
    return [
        blended(look(index).colour, "white", 0.62 * (1 - (place + 1) / len(series.points)))
        for index, series in enumerate(shown.series)
        for place in range(len(series.points))
    ]


def _markers(shown: Arrangement) -> list[dict[str, Any]]:
    """One per point: where there are more series than colours, those of a second round have their markers, too."""
    if shown.axis is None or len(shown.series) <= len(SERIES):
        return [{} for _ in shown.points]
    return [
        {"marker": look(index).marker, "markevery": 0.12, "markersize": 4.5} if index >= len(SERIES) else {}
        for index, series in enumerate(shown.series)
        for _ in series.points
    ]


def summary(point: Point) -> str:
    """A point's figures in words; those of several runs are medians."""
    words = []
    for way in directions(Series("", (point,))):
        found = point.spread(rate("iops", way))
        figures = [f"{rate_label(found.middle, 4)} IOPS" if found else ""]
        model = point.spread(model_rate("iops")) if way == "" else None
        figures += [f"(the model gives {rate_label(model.middle, 4)})"] if model else []
        if found and len(point.runs) > 1:
            figures.append(f"(median of {len(point.runs)}: {rate_label(found.low, 4)} to {rate_label(found.high, 4)})")
        for name, label, *_ in _FIGURES:
            spread = point.spread(latency(name, way))
            figures += [f"  {label} {latency_label(spread.middle, 4)}"] if spread else []
        words.append((f"{way}s  " if way else "") + " ".join(figures))
    return "\n".join(words)
