"""What is fitted, in which order, and by which points: a parameter is fitted where it shows itself.

Each stage goes on from what those before it found. Its parameters start where a formula puts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flashmob.calibration.points import Direction, Point
from flashmob.models import Profile

Settings = dict[str, Any]
Select = Callable[[Sequence[Point]], list[Point]]

_SMALL_BYTES, _LARGE_BYTES = 8192, 65536
_MANY = 16
_HOUR_NS = 3.6e12


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of a profile.

    Attributes:
        key: its dotted key.
        least, most: between which it is looked for.
        start: where it is looked for first, from the stage's points; None: where it is.
        whole: a whole number.
        choices: instead of a range, the values that it may have.
        write: how it goes into the settings, where not under its key.
    """

    key: str
    least: float = 1.0
    most: float = _HOUR_NS
    start: Callable[[Sequence[Point], Profile], float | None] | None = None
    whole: bool = True
    choices: tuple[float, ...] = ()
    write: Callable[[Settings, Profile, float], None] | None = None
    read: Callable[[Profile], float] | None = None

    def put(self, settings: Settings, profile: Profile, value: float) -> None:
        """Sets it to a value."""
        rounded: float = round(value) if self.whole else float(f"{value:.6g}")
        if self.write is not None:
            self.write(settings, profile, rounded)
        else:
            settings[self.key] = rounded

    def value(self, profile: Profile) -> float:
        """What a profile has."""
        if self.read is not None:
            return self.read(profile)
        found: Any = profile
        for part in self.key.split("."):
            found = getattr(found, part)
        return float(found)


@dataclass(frozen=True, slots=True)
class Stage:
    """Parameters that some points determine; `figures` are those of a point that are looked at."""

    name: str
    parameters: tuple[Parameter, ...]
    select: Select
    figures: tuple[str, ...] = ("iops", "mean_ns")


def _of(
    direction: Direction,
    *,
    alone: bool = False,
    many: bool = False,
    small: bool = False,
    large: bool = False,
    pure: bool = True,
    steady: bool | None = None,
    sizes: int = 1,
) -> Select:
    """Points of a direction: `alone` those with one command in flight, `many` those with enough of them.

    None of them where they have fewer than so many sizes: what a byte takes cannot be told from what a request takes.
    """

    def select(points: Sequence[Point]) -> list[Point]:
        found = [point for point in points if point.direction == direction]
        found = [point for point in found if (point.load.read_share in (0, 1)) == pure]
        if steady is not None:
            found = [point for point in found if point.load.is_steady == steady]
        if alone:
            found = [point for point in found if point.load.in_flight == 1]
        if many:
            found = [point for point in found if point.load.in_flight >= _MANY]
        if small and found:
            least = min((p.load.bs_bytes for p in found if p.load.bs_bytes >= 4096), default=found[0].load.bs_bytes)
            found = [point for point in found if point.load.bs_bytes == least]
        if large:
            found = [point for point in found if point.load.bs_bytes >= _LARGE_BYTES]
        return found if len({point.load.bs_bytes for point in found}) >= sizes else []

    return select


def _median_of(name: str) -> Callable[[Sequence[Point], Profile], float | None]:
    def start(points: Sequence[Point], _: Profile) -> float | None:
        values = sorted(v for p in points if (v := getattr(p.measured, name) or p.measured.mean_ns) is not None)
        return values[len(values) // 2] if values else None

    return start


def _most_iops(points: Sequence[Point], _: Profile) -> float | None:
    return max((point.measured.iops for point in points if point.measured.iops is not None), default=None)


def _most_bytes(points: Sequence[Point], _: Profile) -> float | None:
    return max((p.measured.iops * p.load.bs_bytes for p in points if p.measured.iops is not None), default=None)


def simple_stages() -> tuple[Stage, ...]:
    """Of model simple: latency of an idle device, rate of small requests, their unit, bytes a second."""
    stages: list[Stage] = []
    for direction in ("read", "write"):
        one: Direction = "read" if direction == "read" else "write"
        timing = f"timing.{one}"
        latency = Parameter(f"{timing}_latency_ns", start=_median_of("p50_ns"))
        rate = Parameter(f"{timing}_iops", 1e3, 1e9, _most_iops)
        unit = Parameter("timing.unit_bytes", choices=(512, 4096, 8192, 16384))
        bandwidth = Parameter(f"{timing}_bytes_per_s", 1e6, 1e13, _most_bytes)
        stages += [
            Stage(f"{one} rate", (rate,), _of(one, many=True, small=True)),
            Stage(f"idle {one}s", (latency,), _of(one, alone=True, small=True)),
            Stage(f"{one} bandwidth", (bandwidth,), _of(one, many=True, large=True)),
            *([Stage("unit", (unit,), _of(one, many=True))] if one == "read" else []),
        ]
    return tuple(stages)


def _page(profile: Profile) -> float:
    return float(min(profile.timing.nand.read_ns))


def _step(profile: Profile) -> float:
    return float(max(max(profile.timing.nand.read_ns) - min(profile.timing.nand.read_ns), 1))


def _put_page(settings: Settings, profile: Profile, value: float) -> None:
    step = _step(profile)
    settings["timing.nand.read_ns"] = _pages(profile, value, step if step > 1 else 0)


def _put_step(settings: Settings, profile: Profile, value: float) -> None:
    settings["timing.nand.read_ns"] = _pages(profile, _page(profile), value)


def _pages(profile: Profile, fast: float, step: float) -> list[int]:
    """All pages of a cell but one are fast, as drives with three bits a cell show it; the other takes a step more."""
    pages = profile.timing.nand.bits_per_cell
    return [*[round(fast)] * (pages - 1), round(fast + (step if pages > 1 else 0))]


def _step_start(points: Sequence[Point], profile: Profile) -> float | None:
    """A mean above the median tells how much more one page in so many takes."""
    pages = profile.timing.nand.bits_per_cell
    steps = [p.measured.mean_ns - p.measured.p50_ns for p in points if p.measured.mean_ns and p.measured.p50_ns]
    return max(1.0, pages * sorted(steps)[len(steps) // 2]) if steps else None


def _firmware_start(points: Sequence[Point], profile: Profile) -> float | None:
    most = _most_iops(points, profile)
    return None if most is None else profile.timing.nand.cores * 1e9 / most


def _program_start(points: Sequence[Point], profile: Profile) -> float | None:
    """All dies, each a word line on all planes at a time."""
    nand, most = profile.timing.nand, _most_bytes(points, profile)
    if most is None:
        return None
    row_bytes = nand.page_bytes * nand.planes * nand.bits_per_cell
    return nand.channels * nand.dies_per_channel * row_bytes * 1e9 / most


def nand_stages() -> tuple[Stage, ...]:
    """Of model nand: pages, channel, dies and firmware, link, buffer, programs, spare space, suspension."""
    nand = "timing.nand."
    page = Parameter(nand + "read_ns", 500, 1e8, _median_of("p50_ns"), write=_put_page, read=_page)
    step = Parameter(nand + "read_ns (slowest page)", 1, 1e8, _step_start, write=_put_step, read=_step)
    channel = Parameter(nand + "channel_bytes_per_s", 5e7, 5e10)
    dies = Parameter(nand + "dies_per_channel", 1, 64)
    firmware = Parameter(nand + "firmware_ns", 10, 1e6, _firmware_start)
    link = Parameter("timing.link_bytes_per_s", 1e8, 1e12, _most_bytes)
    buffered = Parameter(nand + "buffer_write_ns", 10, 1e8, _median_of("p50_ns"))
    program = Parameter(nand + "program_ns", 1e4, 9e8, _program_start)
    spare = Parameter(nand + "over_provisioning", 0.01, 4, whole=False)
    suspend = Parameter(nand + "suspend_ns", 1, 5e6)
    tails = ("iops", "mean_ns", "p99_ns")
    return (
        Stage("pages", (page, step), _of("read", alone=True, small=True), ("p50_ns", "mean_ns")),
        Stage("firmware", (firmware,), _of("read", many=True, small=True)),
        Stage("channel", (channel, page), _of("read", alone=True, sizes=2)),
        Stage("dies", (dies,), _of("read", small=True), tails),
        Stage("link", (link,), _of("read", many=True, large=True)),
        Stage("firmware", (firmware,), _of("read", many=True, small=True)),
        Stage("pages", (page, step), _of("read", alone=True, small=True), ("p50_ns", "mean_ns")),
        Stage("buffer", (buffered,), _of("write", alone=True, small=True)),
        Stage("programs", (program,), _of("write", many=True, steady=False)),
        Stage("spare space", (spare,), _of("write", many=True, steady=True)),
        Stage("suspension", (suspend,), _of("read", pure=False), tails),
    )


STAGES: dict[Literal["simple", "nand"], Callable[[], tuple[Stage, ...]]] = {
    "simple": simple_stages,
    "nand": nand_stages,
}
