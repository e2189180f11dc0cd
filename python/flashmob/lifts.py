"""What would lift a bottleneck: the keys that do, how far each has to go, and what is narrowest then.

Every proposal is tried: its rate is that of the device with the key changed, not an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from flashmob import bounds
from flashmob.bottleneck import Bound, Drive, Load, bound
from flashmob.models import Nand, Timing

# Where nothing else limits, twice as much is shown; where the next bound is far, what a drive might still become.
_WITHOUT_NEXT, _MOST = 2.0, 4.0
# Bounds as near to each other as this are met together.
_TOGETHER = 1e-3
_MOST_BYTES_PER_S = 10_000_000_000_000
_MOST_BUFFER_BYTES = 1 << 34


@dataclass(frozen=True, slots=True)
class Lift:
    """A key of the profile that raises the bound.

    Attributes:
        key: as --set takes it.
        before: its value.
        after: a value with which something else becomes the narrowest, as far as the key goes.
        iops: the bound then.
        gain: that bound to the one before.
        bottleneck: what is narrowest then.
        amplification: the write amplification then.
    """

    key: str
    before: Any
    after: Any
    iops: float
    gain: float
    bottleneck: str
    amplification: float


def lifts(drive: Drive, load: Load, now: Bound, *, is_steady: bool) -> list[Lift]:
    """What would lift the narrowest resource, the largest gain first; keys that are at their limit are left out."""
    others = [rate for name, rate in now.rates.items() if name != now.bottleneck and rate > now.iops * (1 + 1e-9)]
    factor = min(_MOST, min(others) / now.iops) if others else _WITHOUT_NEXT
    found = []
    for key, before, after in _proposals(drive.timing, load, now, factor, is_steady):
        changed = replace(drive, timing=_with(drive.timing, key, after))
        then = bound(changed, load, is_steady=is_steady)
        if after != before and then.iops > now.iops * (1 + 1e-6):
            gain = then.iops / now.iops
            found.append(
                Lift(f"timing.{key}", before, after, then.iops, gain, _next(now, then), then.write_amplification)
            )
    return sorted(found, key=lambda one: -one.gain)


def _next(now: Bound, then: Bound) -> str:
    """What is narrowest after a change: not what was, where another is met together with it."""
    others = [name for name, rate in then.rates.items() if rate <= then.iops * (1 + _TOGETHER)]
    return next((name for name in others if name != now.bottleneck), then.bottleneck)


def _with(timing: Timing, key: str, value: Any) -> Timing:
    table, dot, name = key.rpartition(".")
    if not dot:
        return timing.model_copy(update={name: value})
    return timing.model_copy(update={table: timing.nand.model_copy(update={name: value})})


def _proposals(
    timing: Timing, load: Load, now: Bound, factor: float, is_steady: bool
) -> Iterator[tuple[str, Any, Any]]:
    """(key below [timing], value, value that would raise the bottleneck by the factor) of what can be turned."""
    if timing.model == "simple":
        yield from _of_simple(timing, load, now.bottleneck, factor)
        return
    nand = timing.nand
    for key, limit in _LARGER.get(now.bottleneck, {}).items():
        before = getattr(nand, key)
        yield f"nand.{key}", before, min(limit, _more(before, factor))
    if now.bottleneck == bounds.DIES:
        yield from _times(nand, load, factor, is_steady)
    if now.bottleneck == bounds.CONTROLLER:
        yield "nand.firmware_ns", nand.firmware_ns, int(nand.firmware_ns / factor)
    if now.bottleneck == bounds.PROGRAM_SHARE:
        yield "nand.program_share", nand.program_share, min(1.0, math.ceil(nand.program_share * factor * 1e3) / 1e3)
    if now.bottleneck == bounds.BUFFER:
        rows = math.ceil(bounds.buffer_rows(nand) * factor)
        yield "nand.buffer_bytes", nand.buffer_bytes, min(_MOST_BUFFER_BYTES, rows * bounds.row_bytes(nand))
    if now.bottleneck in (bounds.TO_HOST, bounds.TO_DRIVE):
        yield "link_bytes_per_s", timing.link_bytes_per_s, _more_bytes(timing.link_bytes_per_s, factor)
    # Less garbage to move lifts whatever moves it.
    if now.cleaning.amplification > 1 and now.bottleneck in (*_LARGER, bounds.PROGRAM_SHARE, bounds.BUFFER):
        yield "nand.over_provisioning", nand.over_provisioning, min(4.0, 2 * nand.over_provisioning)


# Counts and rates of the model nand that lift a resource, with the most that each may be.
_LARGER: dict[str, dict[str, int]] = {
    bounds.DIES: {"dies_per_channel": 64},
    bounds.CHANNELS: {"channel_bytes_per_s": _MOST_BYTES_PER_S},
    bounds.PROGRAM_SHARE: {"channel_bytes_per_s": _MOST_BYTES_PER_S},
    bounds.CONTROLLER: {"cores": 64},
}


def _times(nand: Nand, load: Load, factor: float, is_steady: bool) -> Iterator[tuple[str, Any, Any]]:
    """Of the dies' times the one that fills most of them: it alone is made shorter, if that can be enough."""
    if load.reads and not load.writes:
        yield "nand.read_ns", nand.read_ns, tuple(max(1, int(time_ns / factor)) for time_ns in nand.read_ns)
    elif not load.reads and not is_steady:
        yield "nand.program_ns", nand.program_ns, max(1, int(nand.program_ns / factor))


def _of_simple(timing: Timing, load: Load, bottleneck: str, factor: float) -> Iterator[tuple[str, Any, Any]]:
    keys: dict[str, tuple[str, ...]] = {
        bounds.INSTANCES: (*(["read_iops"] if load.reads else []), *(["write_iops"] if load.writes else [])),
        bounds.READ_BYTES: ("read_bytes_per_s",),
        bounds.WRITE_BYTES: ("write_bytes_per_s",),
        bounds.TO_HOST: ("link_bytes_per_s",),
        bounds.TO_DRIVE: ("link_bytes_per_s",),
    }
    for key in keys[bottleneck]:
        before = getattr(timing, key)
        yield key, before, _more_bytes(before, factor) if key.endswith("_bytes_per_s") else _rounded_up(before * factor)


def _more(value: int, factor: float) -> int:
    """A count that is at least so many times as large."""
    return math.ceil(value * factor) if value < 1_000_000 else _more_bytes(value, factor)


def _more_bytes(value: int, factor: float) -> int:
    return min(_MOST_BYTES_PER_S, int(_rounded_up(value * factor)))


def _rounded_up(value: float) -> float:
    """Three digits, which is what one would type."""
    step = 10 ** (math.floor(math.log10(value)) - 2)
    return float(math.ceil(value / step - 1e-9) * step)
