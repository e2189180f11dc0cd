"""The look that all figures share, and the small parts they are made of. Needs matplotlib; draws without a display."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmob.errors import ConfigError
from flashmob.outputs import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK = "#1f2430"
MUTED = "#6b7280"
GRID = "#e5e7eb"
# Okabe and Ito's colours without their yellow, which white paper swallows: told apart with any kind of colour vision.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
TARGET, PROCESSING, END_TO_END = "#b8c0cc", "#e69f00", "#0072b2"

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
# Bars of mixed loads: the whole, its reads and its writes.
DIRECTION_COLOURS = {"": SERIES[0], "read": SERIES[5], "write": SERIES[1]}
# How the model's own line is drawn, above the measured ones.
MODEL_LINE: dict[str, Any] = {"color": INK, "linestyle": (0, (4, 3)), "linewidth": 1.2, "zorder": 5}
_FORMATS = (".png", ".svg", ".pdf")


@contextmanager
def style() -> Iterator[None]:
    """Figures made, and saved, in this block look alike.

    Raises:
        ConfigError: if matplotlib is missing.
    """
    if not drawable():
        raise ConfigError("figures need matplotlib; run pip install matplotlib")
    import matplotlib as mpl

    with mpl.rc_context(_RC), warnings.catch_warnings():
        # A title in a script that the font lacks is drawn as boxes; a page of warnings would not mend it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def drawable() -> bool:
    """Whether matplotlib is there."""
    try:
        import matplotlib.figure as _  # noqa: F401
    except ImportError:
        return False
    return True


def new_figure(width: float, height: float, *, title: str, footnote: str = "") -> Figure:
    """An empty figure, inches; to be used within style()."""
    from flashmob.canvas import NotebookFigure

    made = NotebookFigure(width, height)
    made.suptitle(
        literal("\n".join(textwrap.wrap(title, int(7 * width)))), x=0.012, ha="left", fontsize=13, fontweight="bold"
    )
    if footnote:
        made.supxlabel(literal(footnote), x=0.012, ha="left", fontsize=8, color=MUTED)
    return made


def save(figure: Figure, path: Path) -> None:
    """Writes a figure to .png, .svg or .pdf; equal figures give equal files.

    The file appears when it is whole: a full disk leaves what was there before.

    Raises:
        ConfigError: if the file's ending is not known or it cannot be written.
    """
    check_format(path)
    kind = path.suffix.lower().removeprefix(".")
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    try:
        path.expanduser().parent.mkdir(parents=True, exist_ok=True)
        with style(), whole_file(path) as part:
            _settle(figure)
            figure.savefig(part, format=kind, metadata=dates)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror or error}); name a file that can") from None


def _settle(figure: Figure) -> None:
    """Lays the panels out for good: the solver's last digits differ from one run to the next, and files with them."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for part in figure.subfigs:
        part.bbox_relative.set(Bbox(part.bbox_relative.get_points().round(6)))
    for axes in figure.axes:
        axes.set_position(Bbox(axes.get_position(original=True).get_points().round(6)))


@contextmanager
def figure(rows: int, columns: int, path: Path, *, title: str, footnote: str = "") -> Iterator[tuple[Figure, Any]]:
    """A figure of rows × columns panels, saved to `path` (.png, .svg or .pdf) when the block ends.

    Raises:
        ConfigError: if matplotlib is missing or the file's ending is not known.
    """
    check_format(path)
    with style():
        made = new_figure(5.4 * columns, 3.9 * rows + 0.7, title=title, footnote=footnote)
        yield made, made.subplots(rows, columns, squeeze=False)
        save(made, path)


def check_format(path: Path) -> None:
    """Raises ConfigError unless a figure can be written in the format that the path's ending names."""
    if path.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{path}: cannot be drawn; use a file name that ends in {', '.join(_FORMATS)}")


def folded(label: str) -> str:
    """A label in lines that leave room for the panel: an NQN or a path may be longer than the panel is wide."""
    return literal("\n".join(textwrap.wrap(label, 44)) or label)


def literal(text: str) -> str:
    """Text as it is: matplotlib takes what stands between two dollar signs for a formula."""
    return text.replace("$", r"\$")


def from_zero(axes: Axes) -> None:
    """An axis of rates that begins at 0 and leaves room above the highest."""
    highest = axes.dataLim.ymax
    axes.set_ylim(0, 1.08 * highest if 0 < highest < math.inf else 1.0)


def heading(axes: Axes, title: str, x: str, y: str) -> None:
    """A panel's title and its axes' labels."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def blended(colour: str, other: str, share: float) -> str:
    """A colour with so much of another in it, from 0 to 1."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = (a + (b - a) * share for a, b in zip(to_rgb(colour), to_rgb(other), strict=True))
    return to_hex((red, green, blue))


def load_axis(
    axes: Axes, loads: Sequence[float], text: Callable[[float], str] | None = None, *, log: bool = True
) -> None:
    """An axis (of base 2 unless told otherwise) with ticks at the loads themselves, as many as have room."""
    text = text or binary_label
    wanted = sorted({load for load in loads if load > 0 or not log})
    if not wanted:
        return
    place: Callable[[float], float] = math.log2 if log else float
    if log:
        axes.set_xscale("log", base=2)
        if len(wanted) == 1:
            axes.set_xlim(wanted[0] / 2, wanted[0] * 2)
    longest = max(len(text(load)) for load in wanted)
    room = (place(wanted[-1]) - place(wanted[0])) * max(0.06, 0.03 + 0.018 * longest)
    ticks: list[float] = []
    for load in reversed(wanted):
        if not ticks or (place(ticks[-1]) - place(load) >= room and text(load) != text(ticks[-1])):
            ticks.append(load)
    axes.set_xticks(ticks[::-1], [text(tick) for tick in ticks[::-1]])
    axes.minorticks_off()


def binary_label(count: float) -> str:
    """262144 -> "256K": powers of 1024, as the field counts GPU threads; what is no whole number of them stays."""
    for unit, scale in (("M", 1 << 20), ("K", 1 << 10)):
        if count >= scale and count % scale == 0:
            return f"{count / scale:g}{unit}"
    return f"{count:,.10g}"


def latency_ticks(axis: Axis, *, log: bool) -> None:
    """An axis of latencies in ns whose ticks read "50 µs" and "2 ms"."""
    from flashmob.canvas import label_axis

    label_axis(axis, latency_label, log=log)


def rate_label(per_second: float, digits: int = 3) -> str:
    """2470000 -> "2.47 M"."""
    rounded = float(f"{per_second:.{digits}g}")
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)):
        if abs(rounded) >= scale or not prefix:
            break
    value = rounded / scale
    number = f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
    return f"{number} {prefix}".strip()


def bandwidth_label(bytes_per_second: float, digits: int = 3) -> str:
    """1264000000 -> "1.26 GB/s"."""
    text = rate_label(bytes_per_second, digits)
    return f"{text}B/s" if text[-1].isalpha() else f"{text} B/s"


def latency_label(ns: float, digits: int = 3) -> str:
    """A time in ns as "50 µs", "2.6 ms" or "1 s"."""
    if ns == 0:
        return "0"
    rounded = float(f"{ns:.{digits}g}")
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0)):
        if abs(rounded) >= scale or unit == "ns":
            break
    value = rounded / scale
    return f"{value:.0f} {unit}" if abs(value) >= 10**digits else f"{value:.{digits}g} {unit}"


def bars(axes: Axes, groups: Sequence[str], series: Sequence[tuple[str, str, Sequence[float]]]) -> None:
    """Grouped bars of latencies in ns: (label, colour, one value per group); logarithmic where they differ a lot."""
    width = 0.84 / len(series)
    positive = [value for _, _, values in series for value in values if value > 0]
    log = bool(positive) and max(positive) > 12 * min(positive)
    for index, (label, colour, values) in enumerate(series):
        places = [group + (index - (len(series) - 1) / 2) * width for group in range(len(groups))]
        drawn = axes.bar(places, list(values), width=width * 0.92, color=colour, label=label)
        if len(groups) <= 2:  # More of them would touch.
            axes.bar_label(drawn, [latency_label(value) for value in values], padding=2, fontsize=8, color=MUTED)
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
