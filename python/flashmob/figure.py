"""The look that all figures share, and the small parts they are made of. Needs matplotlib; draws without a display."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmob.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK = "#1f2430"
MUTED = "#6b7280"
GRID = "#e5e7eb"
# Told apart by people with any kind of colour vision, and in grey by their order of lightness.
SERIES = ("#1d4ed8", "#ea580c", "#0d9488", "#9333ea", "#ca8a04", "#475569")
TARGET, PROCESSING, END_TO_END = "#94a3b8", "#0d9488", "#1d4ed8"

_RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": True,
    "legend.edgecolor": "none",
    "legend.facecolor": "white",
    "legend.fontsize": 8.5,
    "legend.framealpha": 0.85,
    "lines.linewidth": 2.0,
    "lines.markersize": 5.0,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # Text stays text in SVG, and equal data give equal files.
    "svg.fonttype": "none",
    "svg.hashsalt": "flashmob",
}
# How the model's own line is drawn, above the measured ones.
MODEL_LINE: dict[str, Any] = {"color": INK, "linestyle": (0, (4, 3)), "linewidth": 1.2, "zorder": 5}
_FORMATS = (".png", ".svg", ".pdf")


@contextmanager
def figure(rows: int, columns: int, path: Path, *, title: str, footnote: str = "") -> Iterator[tuple[Figure, Any]]:
    """A figure of rows × columns panels, saved to `path` (.png, .svg or .pdf) when the block ends.

    Raises:
        ConfigError: if matplotlib is missing or the file's ending is not known.
    """
    check_format(path)
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise ConfigError("figures need matplotlib; run pip install matplotlib") from None
    with mpl.rc_context(_RC):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
        made = Figure(figsize=(5.4 * columns, 3.9 * rows + 0.7), dpi=150, layout=layout)
        FigureCanvasAgg(made)
        made.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold")
        axes = made.subplots(rows, columns, squeeze=False)
        yield made, axes
        if footnote:
            made.supxlabel(footnote, x=0.012, ha="left", fontsize=8, color=MUTED)
        path.parent.mkdir(parents=True, exist_ok=True)
        dates = {"Date": None} if path.suffix == ".svg" else None
        made.savefig(path, metadata=dates)


def check_format(path: Path) -> None:
    """Raises ConfigError unless a figure can be written in the format that the path's ending names."""
    if path.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{path}: cannot be drawn; use a file name that ends in {', '.join(_FORMATS)}")


def heading(axes: Axes, title: str, x: str, y: str) -> None:
    """A panel's title and its axes' labels."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def load_axis(axes: Axes, loads: Sequence[float]) -> None:
    """A logarithmic axis of requests in flight, its ticks written as 1K, 64K, 2M (powers of two)."""
    axes.set_xscale("log", base=2)
    wanted = sorted({load for load in loads if load > 0})
    step = max(1, -(-len(wanted) // 7))
    ticks = wanted[::-1][::step][::-1]
    axes.set_xticks(ticks, [binary_label(tick) for tick in ticks])
    axes.minorticks_off()


def binary_label(count: float) -> str:
    """262144 -> "256K": powers of 1024, as the field counts GPU threads."""
    for unit, scale in (("M", 1 << 20), ("K", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.3g}{unit}"
    return f"{count:.4g}"


def latency_ticks(axis: Axis, *, log: bool) -> None:
    """An axis of latencies in ns whose ticks read "50 µs" and "2 ms"."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if log:
        low, high = axis.get_view_interval()
        narrow = high / max(low, 1e-9) < 300
        axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda ns, _: latency_label(ns)))


def latency_label(ns: float) -> str:
    """A time in ns as "50 µs", "2.6 ms" or "1 s"."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.3g} ns" if ns else "0"


def bars(axes: Axes, groups: Sequence[str], series: Sequence[tuple[str, str, Sequence[float]]]) -> None:
    """Grouped bars of latencies in ns: (label, colour, one value per group); logarithmic where they differ a lot."""
    width = 0.84 / len(series)
    positive = [value for _, _, values in series for value in values if value > 0]
    log = bool(positive) and max(positive) > 12 * min(positive)
    for index, (label, colour, values) in enumerate(series):
        places = [group + (index - (len(series) - 1) / 2) * width for group in range(len(groups))]
        drawn = axes.bar(places, list(values), width=width * 0.92, color=colour, label=label)
        if len(groups) <= 3:
            texts = [latency_label(value) for value in values]
            axes.bar_label(drawn, texts, padding=2, fontsize=8 if len(groups) < 3 else 7, color=MUTED)
    slanted = len(groups) > 3 and max(map(len, groups)) > 6
    axes.set_xticks(
        range(len(groups)), list(groups), rotation=30 if slanted else 0, ha="right" if slanted else "center"
    )
    axes.grid(visible=False, axis="x")
    if log:
        axes.set_yscale("log")
        axes.set_ylim(min(positive) / 2.5, max(positive) * 5)
        axes.minorticks_off()
    else:
        axes.set_ylim(0, max(positive, default=1.0) * 1.22)
    latency_ticks(axes.yaxis, log=log)
    axes.legend(loc="upper left", ncols=len(series), borderaxespad=0.2)
