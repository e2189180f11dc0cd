"""The figures of several results as a table: what a terminal shows where there is no picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from flashmob.plot_panels import directions
from flashmob.plot_series import Getter, Point, Series, arrange
from flashmob.plot_values import latency, model_rate, off_model, rate
from flashmob.report import VERDICT_STYLES
from flashmob.result import Result
from flashmob.units import format_duration, format_rate

_COLUMNS = ("IOPS", "model", "mean", "p99", "p99.9", "verdict")


def table(results: Sequence[Result]) -> Table:
    """A row per point in the order of the figure, reads and writes apart below it where a run had both."""
    shown = arrange(results)
    several = len(shown.series) > 1
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    # What tells the points apart may be long, and is folded; figures are not.
    drawn.add_column(shown.axis.label if shown.axis else "", overflow="fold", min_width=8)
    for heading in _COLUMNS:
        drawn.add_column(heading, justify="left" if heading == "verdict" else "right", no_wrap=True)
    for series in shown.series:
        for point in series.points:
            place = shown.axis.text(point.x) if shown.axis else ""
            words = ", ".join(word for word in (series.label if several or not place else "", place) if word)
            times = f" (median of {len(point.runs)})" if len(point.runs) > 1 else ""
            drawn.add_row(words + times, *_cells(point, ""), _verdict(point))
            for way in directions(Series("", (point,)))[1:]:
                drawn.add_row(Text(f"  {way}s", style="dim"), *_cells(point, way), "")
    return drawn


def _cells(point: Point, way: str) -> list[str]:
    off = point.spread(off_model(rate("iops"), model_rate("iops"))) if way == "" else None
    cells = [_text(point, rate("iops", way), lambda value: format_rate(value, ""))]
    cells.append("" if off is None else f"{round(off.middle, 1) + 0.0:+.1f} %")
    cells += [_text(point, latency(name, way), lambda ns: format_duration(ns, 3)) for name in ("mean", "p99", "p999")]
    return cells


def _text(point: Point, get: Getter, text: Callable[[float], str]) -> str:
    spread = point.spread(get)
    return "" if spread is None else text(spread.middle).strip()


def _verdict(point: Point) -> Text:
    return Text(point.verdict, style=VERDICT_STYLES.get(point.verdict, ""))
