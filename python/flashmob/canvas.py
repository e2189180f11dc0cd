"""Classes made of matplotlib's own. Imported only where a figure is drawn, because matplotlib may be missing."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

from matplotlib.axis import Axis, XAxis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import Formatter, Locator, LogLocator, MaxNLocator, NullFormatter, NullLocator


class NotebookFigure(Figure):
    """A figure that needs no display and no pyplot, and that a notebook shows as a picture all the same."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), dpi=150)
        self.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1, wspace=0.02, hspace=0.02))
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=100)
        return picture.getvalue()


class LabelFormatter(Formatter):
    """Writes ticks with a function of value and digits, with as many digits as tell all of them apart."""

    def __init__(self, text: Callable[[float, int], str]) -> None:
        self._text = text
        self._digits = 3

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """All ticks of the axis at once."""
        labels: list[str] = []
        for self._digits in range(3, 12):
            labels = [self._text(value, self._digits) for value in values]
            if len(set(labels)) == len(set(values)):
                break
        return labels

    def __call__(self, value: float, pos: int | None = None) -> str:  # noqa: ARG002  (matplotlib's signature)
        """One value, such as that under the pointer."""
        return self._text(value, self._digits)


class WideLogLocator(Locator):
    """Ticks of a logarithmic axis that are round and enough, whether it spans a percent or ten decades."""

    def __init__(self, most: int) -> None:
        self._most = most

    def __call__(self) -> Sequence[float]:
        """The ticks of the axis as it is now."""
        assert self.axis is not None
        low, high = self.axis.get_view_interval()
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """The ticks between two values."""
        low, high = min(vmin, vmax), max(vmin, vmax)
        ratio = high / low if low > 0 else 10.0
        if ratio < 8:
            # The ends of such an axis lie anywhere; ticks beyond them would make it longer.
            ticks = MaxNLocator(nbins=min(self._most, 6), steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
            return [tick for tick in ticks if low <= tick <= high and tick > 0]
        ticks = []
        for subs in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
            ticks = LogLocator(base=10, subs=subs, numticks=30).tick_values(low, high)
            ticks = [tick for tick in ticks if low <= tick <= high]
            if len(ticks) <= self._most:
                break
        return ticks[:: -(-len(ticks) // self._most) or 1]


def label_axis(axis: Axis, text: Callable[[float, int], str], *, log: bool) -> None:
    """Round ticks, labelled with their units, each different. Side by side there is room for fewer of them."""
    most = 5 if isinstance(axis, XAxis) else 8
    axis.set_major_locator(WideLogLocator(most) if log else MaxNLocator(nbins=min(most, 7), steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(LabelFormatter(text))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
