"""Pictures of a study of interfaces: rate, CPU time of a request and requests per joule against depth and threads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashmob.figure import SERIES, figure, from_zero, heading, load_axis, rate_label
from flashmob.study.table import Row
from flashmob.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS = (("iops", "Rate", "IOPS"), ("cpu_us_per_io", "CPU time", "µs of a core for each request"))
_ENERGY = ("ios_per_joule", "Energy, measured", "requests per joule")
# Values that differ by more are told apart on a logarithmic axis alone.
_FAR_APART = 20
_MARKERS = "os^Dv<>PX*"


def draw_interfaces(points: Sequence[Row], folder: Path, *, title: str) -> list[str]:
    """Draws a figure for each direction and size that has something to compare; their names."""
    good = [row for row in points if row["supported"] and row.get("iops")]
    names = []
    for rw, block_bytes in sorted({(row["rw"], row["block_bytes"]) for row in good}):
        chosen = [row for row in good if (row["rw"], row["block_bytes"]) == (rw, block_bytes)]
        axes_of = [axis for axis in ("depth", "threads") if len({row[axis] for row in chosen}) > 1] or ["depth"]
        panels = [*_PANELS, *([_ENERGY] if any(row.get("ios_per_joule") for row in chosen) else [])]
        name = f"{rw}-{block_bytes}.svg"
        words = f"{title}: {rw}, {format_size(block_bytes)}"
        note = "bars: least and most of the repeats"
        with figure(len(axes_of), len(panels), folder / name, title=words, footnote=note) as (_, panel_axes):
            for axis, row_of_axes in zip(axes_of, panel_axes, strict=True):
                other = "threads" if axis == "depth" else "depth"
                fixed = min(row[other] for row in chosen)
                shown = [row for row in chosen if row[other] == fixed]
                for (figure_name, panel, unit), axes in zip(panels, row_of_axes, strict=True):
                    _draw(axes, shown, axis, figure_name)
                    heading(axes, f"{panel}, {other} {fixed}", axis, unit)
            panel_axes[0][0].legend(fontsize=7)
        names.append(name)
    return names


def _draw(axes: Axes, rows: Sequence[Row], axis: str, name: str) -> None:
    for place, interface in enumerate(sorted({row["interface"] for row in rows})):
        line = sorted((row for row in rows if row["interface"] == interface and name in row), key=lambda row: row[axis])
        if not line:
            continue
        values = [row[name] for row in line]
        below = [row[name] - row[f"{name}.least"] for row in line]
        above = [row[f"{name}.most"] - row[name] for row in line]
        axes.errorbar(
            [row[axis] for row in line],
            values,
            yerr=[below, above],
            label=interface,
            color=SERIES[place % len(SERIES)],
            marker=_MARKERS[place % len(_MARKERS)],
            linestyle="-" if place < len(SERIES) else "--",
            capsize=2,
        )
    load_axis(axes, [row[axis] for row in rows])
    there = [row[name] for row in rows if row.get(name, 0) > 0]
    if there and max(there) > _FAR_APART * min(there):
        axes.set_yscale("log")
    else:
        from_zero(axes)
    if name != "cpu_us_per_io":
        axes.yaxis.set_major_formatter(lambda value, _: rate_label(value))
