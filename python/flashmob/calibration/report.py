"""What calibrate prints and draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.text import Text

from flashmob.calibration.fit import Fitted
from flashmob.calibration.judge import FIGURES, TITLES, Judged, summary, worst
from flashmob.figure import SERIES, figure, heading, latency_ticks

_WORST = 3


def left_out_lines(left_out: Mapping[str, int]) -> Iterator[str]:
    """A line for each reason for which rows were not used."""
    for why, count in left_out.items():
        yield f"not used: {count} {'row' if count == 1 else 'rows'}: {why}"


def parameter_lines(parameters: Sequence[Fitted]) -> Iterator[Text]:
    """A line for each parameter, those that the data do not determine last."""
    known = [one for one in parameters if one.why_not is None]
    for one in known:
        off = "" if one.error is None else f", {one.error:.1%} off in the median"
        points = f"{one.points} {'point' if one.points == 1 else 'points'}{off}"
        yield Text.assemble(f"  {_short(one.key):<30}", f"{_number(one.value):>16}  ", (points, "dim"))
    unknown = [one for one in parameters if one.why_not is not None]
    if unknown:
        yield Text("not determined by these data, left as they were or found:")
    for one in unknown:
        yield Text.assemble(f"  {_short(one.key):<30}", f"{_number(one.value):>16}  ", (one.why_not or "", "dim"))


def _short(key: str) -> str:
    return key.removeprefix("timing.")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.4g}"


def error_lines(judged: Sequence[Judged]) -> Iterator[str]:
    """The errors of points that were fitted to and of those that were not, and the worst points by name."""
    for title, part in (
        ("fitted to", [one for one in judged if one.fitted]),
        ("held out", [one for one in judged if not one.fitted]),
    ):
        if not part:
            continue
        yield f"{title}: {len(part)} {'point' if len(part) == 1 else 'points'}"
        for name in FIGURES:
            if (found := summary(part, name)) is not None:
                yield f"  {TITLES[name]:<16} {found.median:6.1%} off in the median, {found.most:6.1%} at most"
    yield "furthest away:"
    for one in worst(judged, _WORST):
        offs = [f"{TITLES[name]} {off:+.0%}" for name in FIGURES if (off := one.error(name)) is not None]
        yield f"  {one.point}: {', '.join(offs)}"


def draw(judged: Sequence[Judged], path: Path, title: str) -> None:
    """Rates and mean latencies, modelled over measured; filled marks were held out of the fit.

    Raises:
        ConfigError: if the file's ending is not known, it cannot be written, or matplotlib is missing.
    """
    note = "Modelled in virtual time. Filled: points that the fit did not see. The line is where both are equal."
    with figure(1, 2, path, title=title, footnote=note) as (_, axes):
        for axis, name, label in ((axes[0][0], "iops", "IOPS"), (axes[0][1], "mean_ns", "mean latency")):
            heading(axis, f"{TITLES[name].capitalize()}", f"measured {label}", f"modelled {label}")
            kinds = sorted({one.point.load.rw for one in judged})
            ends: list[float] = []
            for kind, colour in zip(kinds, SERIES * len(kinds), strict=False):
                for held in (False, True):
                    part = [one for one in judged if one.point.load.rw == kind and one.fitted != held]
                    pairs = [(getattr(one.point.measured, name), getattr(one.modelled, name)) for one in part]
                    pairs = [(x, y) for x, y in pairs if x and y]
                    if pairs:
                        xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
                        ends += [*xs, *ys]
                        face = colour if held else "none"
                        axis.scatter(xs, ys, s=26, facecolors=face, edgecolors=colour, label=kind)
            if ends:
                axis.set_xscale("log")
                axis.set_yscale("log")
                axis.plot([min(ends), max(ends)], [min(ends), max(ends)], color="#b8c0cc", linewidth=1, zorder=0)
            if name == "mean_ns" and ends:
                latency_ticks(axis.xaxis, log=True)
                latency_ticks(axis.yaxis, log=True)
            if ends:
                named = dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
                axis.legend(named.values(), named.keys(), loc="upper left")
