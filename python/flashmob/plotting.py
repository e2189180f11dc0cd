"""Figures of results: rate, bandwidth and latency against what varies, the distribution, and the model beside them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmob.errors import ConfigError
from flashmob.explain import short
from flashmob.figure import INK, MODEL_LINE, MUTED, check_format, folded, new_figure, save, style
from flashmob.plot_panels import (
    METRICS,
    READ_STYLE,
    WRITE_STYLE,
    against_load,
    look,
    marker_style,
    off_the_model,
    where_time_goes,
)
from flashmob.plot_rows import (
    bar_style,
    breakdown_rows,
    distribution,
    entry_inches,
    latency_rows,
    legend_inches,
    rate_rows,
    row_inches,
    rows,
    summary,
)
from flashmob.plot_series import VERDICTS, Arrangement, arrange, device_name, worst_text
from flashmob.plot_values import knows_target, mixed, model_latency, model_rate
from flashmob.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Panel = Callable[[Axes], None]

_WIDTH, _HEIGHT = 15.6, 3.7
# A picture of more rows than this is high would be larger than matplotlib can draw.
_MOST_INCHES = 200.0


def plot(
    results: Result | str | os.PathLike[str] | Iterable[Result | str | os.PathLike[str]], *, title: str | None = None
) -> Figure:
    """Draws results and returns matplotlib's Figure, which notebooks show and `savefig()` writes.

    What varies among the results becomes the axis (queue depth, requesters, offered rate, block size, ...) and the
    series; runs of equal settings become one point, their median, with a bar from the least to the most. Real and
    virtual time are never one series. Runs that are INVALID are crossed out, and those without a verdict are open.

    Args:
        results: one result or several; a text or path is a file of `flashmob bench --json`, or of several results,
            one a line, that ends in .jsonl.
        title: the figure's title; the devices' names if left out.

    Raises:
        ConfigError: if there is no result, if a file cannot be read, or if matplotlib is missing.

    Example:
        runs = [flashmob.bench("d7-ps1010", qd=qd, clock="virtual") for qd in (1, 8, 64)]
        flashmob.plot(runs).savefig("depth.svg")
    """
    if title is not None and not isinstance(title, str):
        raise ConfigError(f"title={short(title)} is not possible: give text")
    given = [results] if isinstance(results, Result | str | os.PathLike) else results
    if not isinstance(given, Iterable):
        raise ConfigError(f"plot({short(results)}) is not possible: give results, or paths of files of them")
    runs = [run for item in given for run in ([item] if isinstance(item, Result) else _loaded(item))]
    if not runs:
        raise ConfigError("there is nothing to draw; give at least one result of flashmob bench --json")
    shown = arrange(with_figures(runs))
    with style():
        if shown.axis is not None:
            return _against_load(shown, title)
        return _rows(shown, title) if len(shown.series) > 1 else _single(shown, title)


def _loaded(item: object) -> list[Result]:
    if not isinstance(item, str | os.PathLike):
        raise ConfigError(f"{short(item)} is neither a result nor the path of a file of results")
    return load_results([item])


def with_figures(runs: Sequence[Result]) -> list[Result]:
    """The runs in which a request succeeded: of the others there is nothing to draw.

    Raises:
        ConfigError: if there is none.
    """
    found = [run for run in runs if run.ios]
    if not found:
        raise ConfigError("there is nothing to draw: no request succeeded in these runs")
    return found


def load_results(paths: Iterable[str | os.PathLike[str]]) -> list[Result]:
    """Reads files of one result, or of one a line (.jsonl). A file that is named twice is read once.

    Raises:
        ConfigError: naming the file that cannot be read.
    """
    results = []
    for path in {Path(path).absolute(): Path(path) for path in paths}.values():
        if path.suffix != ".jsonl":
            results.append(Result.load(path))
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(f"{path}: cannot be read ({why}); give a file of results, one a line") from None
        numbered = [(index, line) for index, line in enumerate(lines, 1) if line.strip()]
        results += [Result.from_json(line, f"{path}, line {index}") for index, line in numbered]
    return results


def draw_results(results: Sequence[Result], path: Path, *, title: str | None = None) -> None:
    """plot(), written to a .png, .svg or .pdf file; see save()."""
    check_format(path)
    save(plot(results, title=title), path)


def _against_load(shown: Arrangement, title: str | None) -> Figure:
    metrics: list[tuple[int, Panel]] = [
        (2, lambda axes, metric=metric: against_load(axes, shown, metric))  # type: ignore[misc]
        for metric in METRICS.values()
    ]
    if any(model_rate("iops")(run) for run in shown.runs):
        metrics.append((2, lambda axes: off_the_model(axes, shown)))
    else:
        metrics[3:] = [(3, panel) for _, panel in metrics[3:]]
    rows_ = [metrics[:3], metrics[3:], _last_row(shown)]
    return _compose(shown, title, _note(shown), rows_, (1.0, 1.0, _last_height(shown)))


def _rows(shown: Arrangement, title: str | None) -> Figure:
    lines = rows(shown)
    top: list[tuple[int, Panel]] = [
        (2, lambda axes: rate_rows(axes, lines)),
        (2, lambda axes: latency_rows(axes, lines)),
    ]
    if any(knows_target(run) for run in shown.runs):
        top.append((2, lambda axes: breakdown_rows(axes, lines)))
    tall = max(0.75, min(row_inches(lines) * len(lines) + 1.0, _MOST_INCHES) / _HEIGHT)
    bottom: list[tuple[int, Panel]] = [(6, lambda axes: distribution(axes, shown))]
    return _compose(shown, title, _note(shown), [top, bottom], (tall, _last_height(shown)))


def _single(shown: Arrangement, title: str | None) -> Figure:
    point = shown.series[0].points[0]
    note = f"{summary(point)}\n{_note(shown)}"
    return _compose(shown, title, note, [_last_row(shown)], (1.2,))


def _last_row(shown: Arrangement) -> list[tuple[int, Panel]]:
    panels: list[tuple[int, Panel]] = [(4, lambda axes: distribution(axes, shown))]
    if any(knows_target(run) for run in shown.runs):
        panels.append((2, lambda axes: where_time_goes(axes, shown)))
    return panels


def _last_height(shown: Arrangement) -> float:
    """Of the row with the distribution, whose legend may be higher than the panel would be."""
    return max(1.15, legend_inches(shown) / _HEIGHT)


def _compose(
    shown: Arrangement,
    title: str | None,
    note: str,
    rows_: Sequence[Sequence[tuple[int, Panel]]],
    heights: Sequence[float],
) -> Figure:
    """Panels from left to right and top to bottom, each as wide as it says, below what they have in common."""
    handles, labels = _key(shown) if shown.axis or len(shown.series) > 1 else ([], [])
    widths = [max(map(len, label.split("\n"))) + 6 for label in labels]
    columns = len(labels) if sum(widths) < 180 else max(1, 180 // max(widths))
    inches = [_HEIGHT * height for height in heights]
    if handles:
        # As matplotlib does it: down each column, and the first ones are the longest.
        ends = [-(-len(labels) * column // columns) for column in range(columns + 1)]
        high = max(sum(map(entry_inches, labels[begin:end])) for begin, end in pairwise(ends))
        inches.insert(0, 0.15 + high)
    made = new_figure(_WIDTH, sum(inches) + 0.9, title=title or _title(shown), footnote=note)
    parts: Any = made.subfigures(len(inches), 1, height_ratios=inches, squeeze=False)[:, 0]
    if handles:
        where = {"loc": "upper left", "bbox_to_anchor": (0.006, 1.0)}
        parts[0].legend(handles, labels, ncols=columns, columnspacing=1.6, handlelength=3, **where)
    for part, panels in zip(parts[-len(rows_) :], rows_, strict=True):
        grid = part.add_gridspec(1, len(panels), width_ratios=[width for width, _ in panels])
        for column, (_, panel) in enumerate(panels):
            panel(part.add_subplot(grid[0, column]))
    return made


def _key(shown: Arrangement) -> tuple[list[Any], list[str]]:
    """The legend of what holds in all panels: the series, the model, reads and writes, and what the markers say."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    labels: list[str] = []

    def add(label: str, *parts: Any) -> None:
        handles.append(parts if len(parts) > 1 else parts[0])
        labels.append(folded(label))

    if shown.axis is not None:
        for index, series in enumerate(shown.series):
            appearance = look(index)
            add(series.label, Line2D([], [], color=appearance.colour, marker=appearance.marker))
    if any(model_rate("iops")(run) or model_latency("mean")(run) for run in shown.runs):
        tick = {"linestyle": "none", "marker": "|", "markersize": 11, "color": INK}
        shade = ", in a darker shade" if shown.axis and len(shown.series) > 1 else ""
        add(f"the model{shade}", Line2D([], [], **(MODEL_LINE if shown.axis else tick)))
    if shown.axis is not None and any(mixed(run) for run in shown.runs):
        add("reads", Line2D([], [], color=MUTED, linestyle=READ_STYLE))
        add("writes", Line2D([], [], color=MUTED, linestyle=WRITE_STYLE))
    verdicts = {point.verdict for series in shown.series for point in series.points}
    for verdict in [name for name in VERDICTS if name in verdicts] if verdicts != {"VALID"} else []:
        if shown.axis is None:
            add(verdict, Patch(**bar_style(verdict, MUTED)))
            continue
        parts = [Line2D([], [], marker="o", linestyle="none", **marker_style(verdict, MUTED))]
        if verdict == "INVALID":
            parts.append(Line2D([], [], marker="x", markersize=3.5, linestyle="none", color=INK))
        add(verdict, *parts)
    if shown.repeated:
        bar = Line2D([], [], marker="|", markersize=9, linestyle="none", color=MUTED)
        add("several runs: their median, least and most", bar)
    return handles, labels


def _title(shown: Arrangement) -> str:
    names = list(dict.fromkeys(device_name(run) for run in shown.runs))
    most = 4 if sum(map(len, names[:4])) < 100 else 1
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _counted(runs: Sequence[Result]) -> str:
    """How many runs have a verdict, and within what those hold that say so."""
    worst = worst_text(runs)
    verdict, _, within = worst.partition(" (within ")
    wide = sum(run.verdict_text != verdict for run in runs)
    if not within or len(runs) == wide == sum(run.verdict_text == worst for run in runs):
        return f"{len(runs)} {worst}"
    return f"{len(runs)} {verdict} ({wide if wide < len(runs) else 'all'} of them within {within}"


def _note(shown: Arrangement) -> str:
    """What all runs have in common, and the verdicts on them."""
    runs = shown.runs
    parts: list[str] = []
    for texts in (
        {f"{run.rw} of {run.bs} bytes" for run in runs},
        {f"{run.clock} time" for run in runs},
        {f"flashmob {run.provenance.get('version', '')}".strip() for run in runs},
    ):
        parts += texts if len(texts) == 1 else []
    kinds = {kind: [run for run in runs if run.verdict == kind] for kind in sorted({run.verdict for run in runs})}
    verdicts = ", ".join(map(_counted, kinds.values()))
    words = f"{len(runs)} runs: {verdicts}" if len(runs) > 1 else f"verdict {runs[0].verdict_text}"
    causes = Counter(run.verdict_cause for run in runs if run.verdict == "INVALID" and run.verdict_cause)
    lines = [f"INVALID: {cause}" for cause, _ in causes.most_common(2)]
    if stopped := sum(run.cancelled or run.device_failed for run in runs):
        lines.append(f"{stopped} of {len(runs)} ended early: stopped, or the device failed")
    return "\n".join([", ".join([*parts, words]), *lines])
