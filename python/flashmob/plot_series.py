"""What varies among results: the axis they are drawn against, the series they fall into, and repeated measurements.

Results are told apart by the settings they record, never by the names of their files. Needs no matplotlib.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from flashmob.figure import binary_label, latency_label, rate_label
from flashmob.models import Fidelity, Nand
from flashmob.result import Result
from flashmob.units import format_rate, format_size

# The verdicts from the one to trust most to the one to trust least; several runs of one point get the last of theirs.
VERDICTS = ("VALID", "VALID (lateness only)", "NOT JUDGED", "NONE", "INVALID")

Getter = Callable[[Result], float | None]


@dataclass(frozen=True, slots=True)
class Key:
    """A setting that may tell results apart, and how its value is written in a legend.

    `said` is whether a difference is named even where other settings tell the same results apart.
    """

    name: str
    value: Callable[[Result], Any]
    text: Callable[[Any], str] = str
    said: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """A number to draw against. `covers` names the keys that it stands for; `scale` is "log2" or "linear"."""

    label: str
    value: Callable[[Result], float | None]
    covers: tuple[str, ...]
    text: Callable[[float], str]
    scale: str = "log2"


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several runs of one point, the least and the most."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Point:
    """One place in a figure: one run, or several of the same settings."""

    x: float
    runs: tuple[Result, ...]

    @property
    def verdict(self) -> str:
        """The worst verdict of the runs."""
        return max((run.verdict for run in self.runs), key=trust)

    @property
    def verdict_text(self) -> str:
        """The worst verdict, as reports say it."""
        return worst_text(self.runs)

    def spread(self, figure: Getter) -> Spread | None:
        """A figure over the runs; None where no run has it."""
        values = [value for run in self.runs if (value := figure(run)) is not None and math.isfinite(value)]
        return Spread(median(values), min(values), max(values)) if values else None


@dataclass(frozen=True, slots=True)
class Series:
    """Points that one line may join: they differ in nothing but the axis."""

    label: str
    points: tuple[Point, ...]

    @property
    def runs(self) -> tuple[Result, ...]:
        """All runs of all points."""
        return tuple(run for point in self.points for run in point.runs)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """All results, in the order in which they are drawn. Without an axis each series is a single point."""

    axis: Axis | None
    series: tuple[Series, ...] = field(default_factory=tuple)

    @property
    def runs(self) -> tuple[Result, ...]:
        """Every run."""
        return tuple(run for series in self.series for run in series.runs)

    @property
    def points(self) -> tuple[tuple[str, Point], ...]:
        """Every point with the words that name it."""
        named = []
        for series in self.series:
            for point in series.points:
                place = self.axis.text(point.x) if self.axis else ""
                named.append((", ".join(word for word in (series.label, place) if word), point))
        return tuple(named)

    @property
    def repeated(self) -> bool:
        """Whether some point was measured more than once."""
        return any(len(point.runs) > 1 for series in self.series for point in series.points)


def worst_text(runs: Iterable[Result]) -> str:
    """The worst verdict of several runs as reports say it, and of VALID ones the one that allows most."""

    def rank(run: Result) -> tuple[int, float]:
        return trust(run.verdict), (run.tolerance and run.tolerance.share) or 0.0

    return max(runs, key=rank).verdict_text


def trust(verdict: str) -> int:
    """0 for the verdict to trust most; a verdict of a newer version counts as not judged."""
    return VERDICTS.index(verdict) if verdict in VERDICTS else VERDICTS.index("NOT JUDGED")


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """Sorts "depth 8" before "depth 32": digits count as numbers."""
    parts = re.findall(r"\d+(?:\.\d+)?|\D+", text)
    return tuple((0, float(part), "") if part[0].isdecimal() else (1, 0.0, part) for part in parts)


def in_flight(result: Result) -> float | None:
    """Requests outstanding at once under a closed loop; None under an open one."""
    if offered_iops(result):
        return None
    options = result.options
    requesters = _number(options.get("requesters"))
    return requesters or (_number(options.get("queues")) or 1) * (_number(options.get("queue_depth")) or 1)


def offered_iops(result: Result) -> float | None:
    """Arrivals per second of an open loop; None under a closed one."""
    return _number(result.options.get("rate_iops")) or None


def device_name(result: Result) -> str:
    """What to call the device."""
    return str(result.device.get("profile") or result.jobname or "device")


def block_text(block: Any) -> str:
    """4096 as text -> "4 KiB"; a mix of sizes stays as it was asked for."""
    number = _number(block)
    return format_size(int(number)) if number is not None else str(block)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _option(name: str) -> Callable[[Result], Any]:
    return lambda result: result.options.get(name)


def _device(part: str, name: str) -> Callable[[Result], Any]:
    return lambda result: (result.device.get(part) or {}).get(name)


def _namespace(name: str) -> Callable[[Result], Any]:
    return lambda result: tuple(item.get(name) for item in result.device.get("namespaces") or ())


def _numeric(value: Callable[[Result], Any]) -> Callable[[Result], float | None]:
    return lambda result: _number(value(result))


def _several(singular: str, plural: str = "") -> Callable[[Any], str]:
    return lambda value: f"{_plain(value)} {singular if value == 1 else plural or singular + 's'}"


def _plain(value: Any) -> str:
    number = _number(value)
    return str(value) if number is None else f"{number:,.10g}"


def _requesters(result: Result) -> float | None:
    return None if offered_iops(result) else _number(result.options.get("requesters")) or None


def _depth(result: Result) -> float | None:
    return None if offered_iops(result) else _number(result.options.get("queue_depth"))


def _depth_asked(result: Result) -> float | None:
    """Of requesters the depth is only the room that they share."""
    return None if _requesters(result) else _depth(result)


def _rules(result: Result) -> tuple[str, ...]:
    return tuple(str(rule.get("rule")) for rule in result.faults)


def _size(result: Result) -> float | None:
    sizes = [_number(size) for size in _namespace("size_bytes")(result)]
    return sizes[0] if len(sizes) == 1 else None


_TIMING = (
    "model",
    "read_iops",
    "write_iops",
    "read_latency_ns",
    "write_latency_ns",
    "instances",
    "unit_bytes",
    "read_bytes_per_s",
    "write_bytes_per_s",
    "link_bytes_per_s",
    "per_request_updates",
)


def _timing(name: str) -> Callable[[Any], Any]:
    """Of the model, if it is known. Results of older versions do not tell that nothing limited their bytes."""

    def value(result: Result) -> Any:
        known = result.device.get("timing")
        return known.get(name, 0 if name.endswith("_bytes_per_s") else None) if known else None

    return value


def _timing_text(name: str) -> Callable[[Any], str]:
    def text(value: Any) -> str:
        number = _number(value)
        if number is None:
            return f"{name} {value}"
        if name == "per_request_updates":
            return "a model update per request" if value else "a model update per batch"
        if name.endswith("_iops"):
            return f"{name.removesuffix('_iops')}s at {_rate_text(number)}"
        if name.endswith("_bytes_per_s"):
            kind = name.removesuffix("_bytes_per_s")
            return f"{kind} up to {format_rate(number, 'B/s')}" if number else f"{kind} unlimited"
        if name.endswith("_ns"):
            return f"{name.removesuffix('_ns').replace('_', ' ')} {latency_label(number)}"
        return f"{_plain(number)} {name}"

    return text


def _nand(name: str) -> Callable[[Result], Any]:
    return lambda result: ((result.device.get("timing") or {}).get("nand") or {}).get(name)


def _nand_text(name: str) -> Callable[[Any], str]:
    """Of a medium that ages, a key in words; nothing of a device without one."""
    words = name.removesuffix("_bytes_per_s").removesuffix("_bytes").removesuffix("_ns").replace("_", " ")

    def text(value: Any) -> str:
        number = _number(value)
        if value is None:
            return ""
        if isinstance(value, bool):
            return f"{words} {'on' if value else 'off'}"
        if isinstance(value, list | tuple):
            return f"{words} {'/'.join(latency_label(_number(one) or 0) for one in value)}"
        if number is None:
            return f"{words} {value}"
        if name.endswith("_bytes_per_s"):
            return f"{words} {format_rate(number, 'B/s')}"
        if name.endswith("_bytes"):
            return f"{words} {format_size(int(number))}"
        if name.endswith("_ns"):
            return f"{words} {latency_label(number)}"
        return f"{words} {100 * number:g} %" if name in _SHARES else f"{words} {_plain(number)}"

    return text


# Keys of [timing.nand] that are shares of something.
_SHARES = ("over_provisioning", "program_share", "slc_fixed", "slc_dynamic")


def _filled(result: Result) -> bool | None:
    """Whether the drive's memory was written full first; None where that is not the run's to say, or makes nothing."""
    media = _namespace("media")(result)[:1]
    seconds = _number(result.provenance.get("fill_seconds"))
    return None if media != ("memory",) or seconds is None or not result.data_moved else seconds > 0


def _precondition(result: Result) -> str:
    return str(result.options.get("precondition") or "none")


def _judged_by(name: str) -> Callable[[Any], str]:
    words = name.removesuffix("_ns").replace("_", " ")
    return lambda value: f"{words} {latency_label(_number(value) or 0) if name.endswith('_ns') else value}"


def _trace_disk(result: Result) -> Any:
    return (result.trace or {}).get("disk")


def _placed(kind: Any) -> str:
    return "writes placed apart" if kind == "apart" else "writes not placed"


def _handles(result: Result) -> Any:
    """What a drive with placement is set to, as it differs from the least that it can be; None of others."""
    placement = result.device.get("placement") or {}
    return tuple((key, value) for key, value in placement.items() if key == "handles" or value) or None


def _handles_text(handles: Any) -> str:
    if handles is None:
        return "no placement"
    values = dict(handles)
    off = [] if values.get("enabled") else ["switched off"]
    more = [f"{key.replace('_', ' ')} {_plain(value)}" for key, value in values.items() if key not in _SAID_OF_HANDLES]
    groups = [_several("reclaim group")(values["reclaim_groups"])] if values.get("reclaim_groups", 1) != 1 else []
    isolated = ["persistently isolated"] if values.get("persistently_isolated") else []
    return ", ".join([f"{_plain(values['handles'])} placement handles", *off, *isolated, *groups, *more])


_SAID_OF_HANDLES = ("handles", "persistently_isolated", "enabled", "reclaim_groups")


# In the order in which a legend names them. Settings that say how long was measured, and the seed, tell nothing apart.
KEYS = (
    Key("device", device_name),
    Key("clock", lambda result: result.clock, lambda clock: f"{clock} time", said=True),
    Key("rw", lambda result: result.rw, said=True),
    Key("bs", lambda result: str(result.bs), block_text, said=True),
    Key("read_share", _option("read_share"), lambda share: f"{100 * (_number(share) or 0):g} % reads"),
    Key("trace", _option("trace_path"), lambda path: f"trace {path}" if path else "no trace"),
    Key("trace_disk", _trace_disk, lambda disk: f"disk {disk}" if disk else "all disks"),
    Key("trace_as_fast", _option("trace_as_fast"), lambda fast: "as fast as possible" if fast else "as timed"),
    Key("distribution", _option("distribution")),
    Key("rate_iops", offered_iops, lambda rate: f"{_rate_text(rate)} offered" if rate else "", said=True),
    Key("arrivals", lambda result: result.options.get("arrivals") if offered_iops(result) else None, str),
    Key("requesters", _requesters, lambda count: _several("requester")(count) if count else "", said=True),
    Key("queues", _option("queues"), _several("queue"), said=True),
    Key("queue_depth", _depth_asked, lambda depth: f"depth {_plain(depth)}" if depth else "", said=True),
    Key("think_time_ns", _option("think_time_ns"), lambda ns: f"think {latency_label(_number(ns) or 0)}"),
    Key("threads", _option("threads"), _several("driver thread")),
    Key("completion", _option("completion"), lambda kind: {"interrupt": "interrupts"}.get(kind, kind or "")),
    Key("engine", _device("engine", "kind"), lambda kind: f"{kind} engine"),
    Key("units", _device("engine", "units"), _several("unit")),
    Key("workers", _device("engine", "workers"), _several("worker")),
    Key("sms", _device("engine", "sms"), _several("multiprocessor")),
    Key("copy", _device("engine", "copy"), lambda kind: f"copy {kind}"),
    Key("fetch_limit", _device("engine", "fetch_limit"), lambda count: f"fetch limit {_plain(count)}"),
    Key("media", _namespace("media"), lambda media: " and ".join(map(str, media))),
    Key("lba", _namespace("lba_bytes"), lambda sizes: f"LBAs of {' and '.join(map(block_text, sizes))}"),
    Key(
        "precondition", _precondition, lambda kind: "steady state" if kind == "steady" else "no precondition", said=True
    ),
    Key("placement", lambda result: result.options.get("placement") or "none", _placed, said=True),
    Key("handles", _handles, _handles_text),
    Key("filled", _filled, lambda filled: {True: "filled", False: "not filled"}.get(filled, "")),
    Key("data_moved", lambda result: result.data_moved, lambda moved: "" if moved else "no data", said=True),
    Key("faults", _rules, lambda rules: "; ".join(rules) or "no faults", said=True),
    *(Key(f"timing.{name}", _timing(name), _timing_text(name)) for name in _TIMING),
    *(Key(f"timing.nand.{name}", _nand(name), _nand_text(name)) for name in Nand.model_fields),
)
# Settings that often differ by chance: they tell results apart only where nothing else does.
_WEAK = (
    Key("queue_entries", _option("queue_entries"), lambda count: f"{_plain(count)} ring entries"),
    Key("size", _namespace("size_bytes"), lambda sizes: " and ".join(format_size(int(size or 0)) for size in sizes)),
    Key("verify", _option("verify_percent"), lambda percent: f"{_plain(percent)} % verified"),
    Key("poll", _option("virtual_poll_ns"), lambda ns: f"polled every {latency_label(_number(ns) or 0)}"),
    *(Key(f"fidelity.{name}", _device("fidelity", name), _judged_by(name)) for name in Fidelity.model_fields),
    Key("version", lambda result: result.provenance.get("version"), lambda version: f"flashmob {version}"),
    Key("cpu", lambda result: result.provenance.get("cpu")),
    Key("cores", lambda result: result.provenance.get("cores"), _several("core")),
    Key("kernel", lambda result: result.provenance.get("kernel"), lambda kernel: f"kernel {kernel}"),
)
_LOAD = ("queues", "queue_depth", "requesters")


def _rate_text(rate: float) -> str:
    return f"{rate_label(rate, 5)}/s"


AXES = (
    Axis("offered rate", offered_iops, ("rate_iops",), _rate_text, "linear"),
    Axis("queue depth", lambda r: None if _requesters(r) else _depth(r), ("queue_depth",), _plain),
    Axis("requesters", _requesters, ("requesters",), binary_label),
    Axis("queues", lambda r: _number(r.options.get("queues")), ("queues",), _plain),
    Axis("requests in flight", in_flight, _LOAD, _plain),
    Axis("block size", lambda r: _number(r.bs), ("bs",), block_text),
    Axis("share of reads", _numeric(_option("read_share")), ("read_share",), lambda x: f"{100 * x:.4g} %", "linear"),
    Axis("think time", _numeric(_option("think_time_ns")), ("think_time_ns",), latency_label, "linear"),
    Axis("driver threads", _numeric(_option("threads")), ("threads",), _plain),
    Axis("service units", _numeric(_device("engine", "units")), ("units",), _plain),
    Axis("workers per unit", _numeric(_device("engine", "workers")), ("workers",), _plain, "linear"),
    Axis("multiprocessors", _numeric(_device("engine", "sms")), ("sms",), _plain),
    Axis("fetch limit", _numeric(_device("engine", "fetch_limit")), ("fetch_limit",), _plain),
    Axis(
        "the device's rate",
        _numeric(_device("timing", "read_iops")),
        ("timing.read_iops", "timing.write_iops", "timing.instances"),
        _rate_text,
        "linear",
    ),
    Axis(
        "the device's latency",
        _numeric(_device("timing", "read_latency_ns")),
        ("timing.read_latency_ns", "timing.write_latency_ns"),
        latency_label,
        "linear",
    ),
    Axis(
        "over-provisioning",
        _numeric(_nand("over_provisioning")),
        ("timing.nand.over_provisioning",),
        lambda share: f"{100 * share:.4g} %",
        "linear",
    ),
    Axis("size of the namespace", _size, ("size",), block_text),
)


def arrange(results: Sequence[Result]) -> Arrangement:
    """Finds the axis and the series of results, and sorts both by what they stand for."""
    for axis in AXES:
        xs = [axis.value(result) for result in results]
        if any(x is None for x in xs) or len(set(xs)) < 2:
            continue
        keys = _telling([key for key in KEYS if key.name not in axis.covers], results)
        lines = [{axis.value(result) for result in group} for group in _groups(keys, results).values()]
        counts = [len(group) for group in _groups(keys, results).values()]
        joined = sum(count for line, count in zip(lines, counts, strict=True) if len(line) > 1)
        if 2 * joined > len(results) and not _hides(axis, keys, results):
            return _arranged(axis, keys, results)
    return _arranged(None, _telling(KEYS, results), results)


def _hides(axis: Axis, keys: Sequence[Key], results: Sequence[Result]) -> bool:
    """Whether one place on the axis would hold different settings as if they were repetitions."""
    covered = [key for key in KEYS if key.name in axis.covers]
    first: dict[Hashable, Hashable] = {}
    for result in results:
        place = (*_values(keys, result), axis.value(result))
        if first.setdefault(place, _values(covered, result)) != _values(covered, result):
            return True
    return False


def _values(keys: Iterable[Key], result: Result) -> tuple[Hashable, ...]:
    return tuple(_hashable(key.value(result)) for key in keys)


def _hashable(value: Any) -> Hashable:
    return value if isinstance(value, Hashable) else str(value)


def _groups(keys: Sequence[Key], results: Iterable[Result]) -> dict[tuple[Hashable, ...], list[Result]]:
    groups: dict[tuple[Hashable, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(_values(keys, result), []).append(result)
    return groups


def _telling(keys: Sequence[Key], results: Sequence[Result]) -> list[Key]:
    """The keys that split the results; one that says no more than those before it is left out."""
    chosen: list[Key] = []
    parts = 1
    for key in keys:
        split = len(_groups([*chosen, key], results))
        if split > parts or (key.said and len(_groups([key], results)) > 1):
            chosen.append(key)
            parts = split
    return chosen


def _arranged(axis: Axis | None, keys: list[Key], results: Sequence[Result]) -> Arrangement:
    place = [] if axis is None else [Key("axis", axis.value)]
    covered = () if axis is None else axis.covers
    for weak in _WEAK:
        same = _groups([*keys, *place], results).values()
        if weak.name not in covered and any(len(_groups([weak], group)) > 1 for group in same):
            keys = [*keys, weak]
    series = []
    for group in sorted(_groups(keys, results).values(), key=lambda group: _order(keys, group[0])):
        points: dict[float, list[Result]] = {}
        for result in group:
            points.setdefault((axis.value(result) if axis else None) or 0.0, []).append(result)
        words = [key.text(key.value(group[0])) for key in keys]
        label = ", ".join(word for word in words if word) or device_name(group[0])
        series.append(Series(label, tuple(Point(x, tuple(points[x])) for x in sorted(points))))
    return Arrangement(axis, tuple(series))


def _order(keys: Sequence[Key], result: Result) -> tuple[Any, ...]:
    order: list[Any] = []
    for key in keys:
        value = key.value(result)
        number = _number(value)
        order.append((0, number, ()) if number is not None else (1, 0.0, natural(key.text(value))))
    return tuple(order)
