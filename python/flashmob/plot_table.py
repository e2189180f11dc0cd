"""The figures of several results as a table: what a terminal shows where there is no picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.text import Text

from flashmob.live import verdict_style
from flashmob.plot_panels import directions
from flashmob.plot_series import Getter, Point, Series, arrange
from flashmob.plot_values import latency, model_rate, off_model, rate
from flashmob.result import Result
from flashmob.units import format_duration, format_rate

_COLUMNS = ("IOPS", "model", "mean", "p99", "p99.9", "verdict")
# Which go first where the terminal is too narrow for all.
_SPARE = ("p99.9", "model", "mean")
_GAP = "  "


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    cells: dict[str, str]
    style: str = ""


def table(results: Sequence[Result], width: int = 80) -> Group:
    """A row per point, of several runs their median, in the order of the figure; below it reads and writes of a mix.

    What several points share stands in a line of its own above them. Nothing is wrapped or cut: where `width` is too
    small for all columns, some are left out.
    """
    shown = arrange(results)
    title = shown.axis.label if shown.axis else ""
    blocks: list[tuple[str, list[_Row]]] = []
    for series in shown.series:
        rows = [row for point in series.points for row in _rows(point, shown.axis.text(point.x) if shown.axis else "")]
        if shown.axis is None:
            rows[0] = _Row(series.label + rows[0].name, rows[0].cells, rows[0].style)
        blocks.append((series.label if shown.axis and len(shown.series) > 1 else "", rows))
    everything = [_Row(title, {name: name for name in _COLUMNS}), *(row for _, rows in blocks for row in rows)]
    first = max(len(row.name) for row in everything)
    if shown.axis is None and first > width // 3:
        # Names as long as that get lines of their own, too.
        blocks = [(rows[0].name, [_Row("", rows[0].cells, rows[0].style), *rows[1:]]) for _, rows in blocks]
        first = max(len(row.name) for _, rows in blocks for row in rows)
    widths = {name: max(len(row.cells[name]) for row in everything) for name in _COLUMNS}
    for spare in _SPARE:
        if first + sum(len(_GAP) + wide for wide in widths.values()) > width:
            del widths[spare]
    lines = [_line(everything[0], first, widths, "dim")]
    for label, rows in blocks:
        lines += [Text(label, style="bold")] if label else []
        lines += [_line(row, first, widths, row.style) for row in rows]
    return Group(*lines)


def _line(row: _Row, first: int, widths: dict[str, int], style: str) -> Text:
    line = Text(row.name.ljust(first), style="dim" if style == "dim" else "", no_wrap=True, overflow="ignore")
    for name, wide in widths.items():
        cell = row.cells[name]
        if name == "verdict":
            line.append(_GAP + cell, style=verdict_style(cell) or style)
        else:
            line.append(_GAP + cell.rjust(wide), style=style)
    line.rstrip()
    return line


def _rows(point: Point, place: str) -> list[_Row]:
    times = f" (×{len(point.runs)})" if len(point.runs) > 1 else ""
    return [
        _Row(place + times, _cells(point, "") | {"verdict": point.verdict_text}),
        *(
            _Row(f"  {way}s", _cells(point, way) | {"verdict": ""}, "dim")
            for way in directions(Series("", (point,)))[1:]
        ),
    ]


def _cells(point: Point, way: str) -> dict[str, str]:
    off = point.spread(off_model(rate("iops"), model_rate("iops"))) if way == "" else None
    cells = {
        "IOPS": _text(point, rate("iops", way), lambda value: format_rate(value, "")),
        "model": "" if off is None else f"{round(off.middle, 1) + 0.0:+.1f} %",
    }
    for label, name in (("mean", "mean"), ("p99", "p99"), ("p99.9", "p999")):
        cells[label] = _text(point, latency(name, way), lambda ns: format_duration(ns, 3))
    return cells


def _text(point: Point, get: Getter, text: Callable[[float], str]) -> str:
    spread = point.spread(get)
    return "" if spread is None else text(spread.middle).strip()
