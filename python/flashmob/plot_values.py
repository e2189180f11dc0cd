"""The figures of a result that are drawn: rates, latencies, the model's, and the curve of a distribution.

Documents of older versions lack some of them; then there is None. Needs no matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flashmob.plot_series import Getter
from flashmob.result import Result

# Name of a percentile in a result, and the share of the requests above it.
PERCENTILES = (("p50", 0.5), ("p90", 0.1), ("p99", 1e-2), ("p999", 1e-3), ("p9999", 1e-4), ("p99999", 1e-5))
# The curve keeps a thousandth of the requests apart at best; nearer to its end the percentiles know more.
_CDF_RESOLUTION = 2e-3
DIRECTIONS = ("", "read", "write")


def part(value: Any, *path: str) -> Any:
    """A nested key of a JSON object, or attribute of an object made from one; None where there is none."""
    for name in path:
        if isinstance(value, Result):
            value = getattr(value, name, None) if name not in value.extra else value.extra[name]
        elif isinstance(value, Mapping):
            value = value.get(name)
        else:
            value = getattr(value, name, None)
        if value is None:
            return None
    return value


def number(value: Any, *path: str) -> float | None:
    """A nested number; None where there is none."""
    found = part(value, *path)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def mixed(result: Result) -> bool:
    """Whether the run completed reads and writes, and reported them apart."""
    return all((number(result, direction, "ios") or 0) > 0 for direction in ("read", "write"))


def completed(result: Result, direction: str = "") -> float:
    """Requests that a figure rests on."""
    return (number(result, direction, "ios") if direction else float(result.ios)) or 0.0


def rate(name: str, direction: str = "") -> Getter:
    """Of "iops" or "bw_bytes"."""
    return lambda result: number(result, direction, name) if direction else number(result, name)


def latency(figure: str, direction: str = "") -> Getter:
    """A figure of the latency, ns; None for a percentile that rests on less than one request."""
    above = dict(PERCENTILES).get(figure, 1.0)

    def get(result: Result) -> float | None:
        ios = completed(result, direction)
        if ios and ios * above < 1:
            return None
        path = (direction, "latency_ns", figure) if direction else ("latency_ns", figure)
        return number(result, *path) or None

    return get


def mean_of(name: str) -> Getter:
    """The mean of one of the result's distributions, ns."""
    return lambda result: number(result, name, "mean")


def model_rate(name: str) -> Getter:
    """The model's rate; its bandwidth is that of requests as large as the run's."""

    def get(result: Result) -> float | None:
        iops = number(result, "model", "iops") or number(result, "model_iops")
        if iops is None or name == "iops":
            return iops
        return iops * result.bw_bytes / result.iops if result.iops else None

    return get


def model_latency(figure: str) -> Getter:
    """A figure of the latency that the model gave on the same arrivals, ns."""
    return lambda result: number(result, "model", "latency_ns", figure) or None


def off_model(measured: Getter, model: Getter) -> Getter:
    """How far a figure lies from the model's, in percent of it."""

    def get(result: Result) -> float | None:
        found, given = measured(result), model(result)
        return None if found is None or not given else 100 * (found - given) / given

    return get


def beyond_target(result: Result) -> float | None:
    """What emulator, queues and host added to the mean target, ns; None where that is nothing, or not known."""
    if result.target_ns is None or not result.target_ns.mean:
        return None
    return max(result.latency_ns.mean - result.target_ns.mean, 0.0) or None


@dataclass(frozen=True, slots=True)
class Curve:
    """Latency against the share of the requests above it, descending share; `named` are the percentiles among them."""

    points: tuple[tuple[float, float], ...]
    named: tuple[tuple[float, float], ...]


def curve(result: Result, direction: str = "") -> Curve:
    """The distribution of a run's latencies, from its least to its greatest.

    The recorded curve is exact in its middle; its end is continued with the percentiles that the number of requests
    supports, and with the greatest latency, above which lies less than one request.
    """
    figures = part(result, direction, "latency_ns") if direction else result.latency_ns
    ios = completed(result, direction)
    known = [(above, value) for name, above in PERCENTILES if (value := number(figures, name))]
    named = [(above, value) for above, value in known if not ios or ios * above >= 1]
    vertices: list[tuple[float, float]] = []
    edge = 1.0
    for ns, share in () if direction else result.latency_cdf:
        if edge <= _CDF_RESOLUTION:
            break
        vertices.append((edge, ns))
        if share >= 1:
            break
        edge = 1 - share
        vertices.append((edge, ns))
    least, greatest = number(figures, "min"), number(figures, "max")
    if not vertices and least:
        vertices.append((1.0, least))
    vertices += [place for place in named if place[0] < edge]
    if greatest:
        deepest = min((above for above, _ in vertices), default=1.0)
        vertices.append((min(1 / ios, deepest) if ios else deepest / 2, greatest))
    return Curve(_ascending(vertices, greatest), tuple(named))


def knows_target(result: Result) -> bool:
    """Whether the run tells what its timing model asked for."""
    return bool(number(result, "target_ns", "mean"))


def model_curve(result: Result) -> Curve:
    """The model's percentiles on the same arrivals, as far as they are reported; empty without a model."""
    figures = part(result, "model", "latency_ns")
    points = [(above, value) for name, above in PERCENTILES if (value := number(figures, name))]
    if (greatest := number(figures, "max")) and result.ios:
        points = [place for place in points if place[0] * result.ios > 1]
        points.append((1 / result.ios, greatest))
    return Curve(tuple(points), ())


def _ascending(vertices: list[tuple[float, float]], most: float | None) -> tuple[tuple[float, float], ...]:
    """Buckets' middles and percentiles differ by up to a bucket, but a distribution never falls nor passes its end."""
    ordered = sorted(vertices, key=lambda place: (-place[0], place[1]))
    highest = 0.0
    rising = []
    for above, ns in ordered:
        highest = max(highest, min(ns, most or ns))
        if highest > 0:
            rising.append((above, highest))
    return tuple(rising)
