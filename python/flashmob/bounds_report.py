"""What `flashmob explain` says of a device under a load: as an object, as JSON, and as lines for a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from flashmob import bounds
from flashmob.amplification import Superblocks
from flashmob.bottleneck import TOLERANCE, Bound, Drive, Load, Reached, bound, idle_latency_ns, reached
from flashmob.bottleneck_notes import notes
from flashmob.lifts import Lift, lifts
from flashmob.models import Profile, Timing
from flashmob.options import BenchOptions
from flashmob.units import exact_duration, exact_size, format_capacity, format_duration, format_rate, format_size

_WIDTH, _LABEL = 80, 14
_SCHEMA_VERSION = 1
# The blank between a number and its unit.
_UNIT = re.compile(r"(?<=[0-9]) (?=%|[GMk]?IOPS|[mun]?s\b|[KMGT]?i?B\b|GB/s)", re.ASCII)


@dataclass(frozen=True, slots=True)
class State:
    """A state of the drive: its bounds, and what would lift the lowest."""

    bound: Bound
    lifts: list[Lift]


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that is known of a device under a load without simulating it.

    Attributes:
        profile: the device.
        options: the load.
        fresh: before any garbage is collected; None where there is no model.
        steady: in steady state of model nand where something is written; else None.
        latency_ns: direction -> part of the way -> time on an idle device.
        reached: what the load's requests in flight come to; None where there is no model.
        blocks: how the flash is cut; None but with model nand.
        notes: what these figures do not hold, a sentence each.
    """

    profile: Profile
    options: BenchOptions
    fresh: State | None
    steady: State | None
    latency_ns: dict[bounds.Direction, dict[str, float]]
    reached: Reached | None
    blocks: Superblocks | None
    notes: list[str]


def explanation(profile: Profile, options: BenchOptions) -> Explanation:
    """What limits a device under the load that options of a benchmark describe."""
    drive, load = Drive.of(profile), Load.of(options)
    if drive.timing.model == "none":
        return Explanation(profile, options, None, None, {}, None, None, [nothing_to_explain(profile)])
    blocks = drive.superblocks()
    fresh = _state(drive, load, is_steady=False)
    steady = _state(drive, load, is_steady=True) if blocks is not None and load.writes else None
    found = reached(drive.timing, load, fresh.bound)
    said = notes(drive, load, fresh.bound, steady.bound if steady else None, found)
    return Explanation(profile, options, fresh, steady, idle_latency_ns(drive.timing, load), found, blocks, said)


def nothing_to_explain(profile: Profile) -> str:
    """Why a device without a model has no bounds."""
    return (
        f'There is nothing to explain: {profile.name} has no timing model (timing.model = "none"), so what limits it '
        "is flashmob and the machine that it runs on; flashmob bench measures that."
    )


def _state(drive: Drive, load: Load, *, is_steady: bool) -> State:
    found = bound(drive, load, is_steady=is_steady)
    return State(found, lifts(drive, load, found, is_steady=is_steady))


def to_dict(explained: Explanation) -> dict[str, Any]:
    """As JSON has it; docs/guide/explain.md lists the fields."""
    options, timing = explained.options, explained.profile.timing
    load = Load.of(options)
    return {
        "schema": "flashmob-explanation",
        "schema_version": _SCHEMA_VERSION,
        "profile": explained.profile.name,
        "model": timing.model,
        "load": {
            "rw": options.rw,
            "read_share": load.read_share,
            "block_sizes": [{"bytes": bytes_, "share": share} for bytes_, share in load.sizes],
            "queues": options.queues,
            "in_flight": load.in_flight,
        },
        "fresh": _state_dict(explained, explained.fresh),
        "steady": _state_dict(explained, explained.steady),
        "idle_latency_ns": {
            direction: {"total": sum(parts.values()), "parts": parts}
            for direction, parts in explained.latency_ns.items()
        },
        "reached": asdict(explained.reached) if explained.reached else None,
        "notes": explained.notes,
    }


def _state_dict(explained: Explanation, state: State | None) -> dict[str, Any] | None:
    if state is None:
        return None
    found, timing = state.bound, explained.profile.timing
    return {
        "bottleneck": found.bottleneck,
        "iops": found.iops,
        "bytes_per_s": found.iops * Load.of(explained.options).mean_bytes(),
        "write_amplification": found.write_amplification if timing.model == "nand" else None,
        "resources": [
            {"name": name, "iops": rate, "busy_share": found.busy_share(name), "is": _what(timing, name)}
            for name, rate in found.rates.items()
        ],
        "iops_if_each_read_suspends": found.suspended_iops,
        "lifts": [asdict(one) for one in state.lifts],
    }


def lines(explained: Explanation) -> Iterator[str]:
    """What the terminal shows below its heading, none of it wider than 80 columns."""
    timing = explained.profile.timing
    fresh, found = explained.fresh, explained.reached
    yield from _line("load", _load(explained.options))
    if fresh is None or found is None:
        yield from _line("bounds", explained.notes[0])
        return
    yield from _line("drive", _drive(explained))
    for direction, parts in explained.latency_ns.items():
        yield from _line(f"idle {direction}", _latency(parts))
    yield ""
    yield from _table(timing, fresh.bound, "before any garbage is collected" if explained.steady else "")
    yield from _verdict(explained, fresh)
    yield from _line("saturated by", _saturated(found))
    yield from _line("in flight", f"{Load.of(explained.options).in_flight:,}: {_reached(found)}")
    if explained.steady is not None:
        yield ""
        cache = " without its SLC cache" if bounds.has_cache(timing.nand) else ""
        yield from _table(timing, explained.steady.bound, f"in steady state{cache}")
        yield from _line("amplification", _amplification(explained, explained.steady.bound))
        yield from _verdict(explained, explained.steady)
    if explained.notes:
        yield ""
        yield "What these figures do not hold:"
        for note in explained.notes:
            yield from _wrapped(note, "- ")


def _line(label: str, text: str) -> list[str]:
    return _wrapped(text, f"{label:<{_LABEL}}")


def _wrapped(text: str, label: str) -> list[str]:
    """Lines of a text beside its label; a number stays with its unit."""
    found = textwrap.wrap(
        _UNIT.sub("\u00a0", text),
        _WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\u00a0", " ") for line in found]


def _load(options: BenchOptions) -> str:
    sizes = ", ".join(format_size(bytes_) for bytes_, _ in options.block_sizes)
    mixed = f" ({100 * options.read_share:.3g} % reads)" if options.rw in ("rw", "randrw") else ""
    queues = f"{options.queues:,} queue{'s' * (options.queues != 1)}"
    if options.requesters:
        return f"{options.rw} {sizes}{mixed}, {options.requesters:,} requesters on {queues}"
    return f"{options.rw} {sizes}{mixed}, {queues} × {options.queue_depth:,} in flight"


def _drive(explained: Explanation) -> str:
    timing = explained.profile.timing
    sizes = [namespace.size_bytes for namespace in explained.profile.subsystem.namespaces]
    size = format_capacity(sum(sizes)) if sizes and all(sizes) else "a file"
    if timing.model == "simple":
        return f"model simple, {size}, counted in units of {format_size(timing.unit_bytes)}"
    nand = timing.nand
    cut = f", {explained.blocks.count:,} superblocks" if explained.blocks else ""
    return (
        f"model nand, {nand.channels} channels × {nand.dies_per_channel} dies × {nand.planes} planes, {size}{cut}, "
        f"over-provisioning {nand.over_provisioning:g}"
    )


def _latency(parts: dict[str, float]) -> str:
    shown = [f"{name} {format_duration(part_ns, 3)}" for name, part_ns in parts.items() if part_ns]
    total = format_duration(sum(parts.values()))
    return f"{total} = {' + '.join(shown)}" if len(shown) > 1 else total


def _table(timing: Timing, found: Bound, state: str) -> Iterator[str]:
    yield f"{'resource':<{_LABEL}}{'lets through':>13}{'busy':>8}  {state}".rstrip()
    for name, rate in found.rates.items():
        yield f"{name:<{_LABEL}}{format_rate(rate):>13}{100 * found.busy_share(name):>6.3g} %  {_what(timing, name)}"
    if timing.model == "nand":
        yield f"{'planes':<{_LABEL}}{'as dies':>13}{'':>8}  {timing.nand.planes} a die, which work together"
        yield f"{'mapping':<{_LABEL}}{'no bound':>13}{'':>8}  in memory as a whole: costs no time"


def _what(timing: Timing, name: str) -> str:
    """A resource in a few words: how many there are, and what each takes."""
    nand = timing.nand
    link = f"{timing.link_bytes_per_s / 1e9:.4g} GB/s, link_bytes_per_s"
    share = f"{100 * nand.program_share:.3g} %"
    return {
        bounds.DIES: f"{bounds.dies(nand)}; a read {format_duration(bounds.sensing_ns(nand), 3)}, "
        f"a program {format_duration(nand.program_ns, 3)}",
        bounds.CHANNELS: f"{nand.channels} × {nand.channel_bytes_per_s / 1e9:.4g} GB/s",
        bounds.PROGRAM_SHARE: f"{share} of the channels, for programs' data",
        bounds.BUFFER: f"{bounds.buffer_rows(nand):,} rows of {format_size(bounds.row_bytes(nand))} on their way",
        bounds.CONTROLLER: f"{nand.cores} cores, {format_duration(nand.firmware_ns, 3)} a command",
        bounds.TO_HOST: link,
        bounds.TO_DRIVE: link,
        bounds.INSTANCES: f"{timing.instances}, {format_size(timing.unit_bytes)} a unit, read_iops, write_iops",
        bounds.READ_BYTES: f"{timing.read_bytes_per_s / 1e9:.4g} GB/s, read_bytes_per_s",
        bounds.WRITE_BYTES: f"{timing.write_bytes_per_s / 1e9:.4g} GB/s, write_bytes_per_s",
    }[name]


def _verdict(explained: Explanation, state: State) -> Iterator[str]:
    found = state.bound
    bandwidth = found.iops * Load.of(explained.options).mean_bytes() / 1e9
    yield from _line("bottleneck", f"{found.bottleneck}: {format_rate(found.iops)}, {bandwidth:.4g} GB/s")
    for number, one in enumerate(state.lifts):
        then = f"then {one.bottleneck}" if one.bottleneck != found.bottleneck else f"still {one.bottleneck}"
        gain = f"{100 * (one.gain - 1):+.3g} %" if one.gain < 2 else f"× {one.gain:.3g}"
        change = f"{one.key} {_value(one.key, one.before)} → {_value(one.key, one.after)}"
        yield from _line("" if number else "lifted by", f"{change}: {format_rate(one.iops)} ({gain}), {then}")


def _value(key: str, value: Any) -> str:
    """A value as one would type it behind --set."""
    if isinstance(value, tuple):
        return ",".join(_value(key, one) for one in value)
    if key.endswith("_bytes_per_s"):
        return f"{value / 1e9:.4g}GB"
    if key.endswith("_ns"):
        return exact_duration(value)
    return exact_size(value) if key.endswith("_bytes") else f"{value:g}"


def _saturated(found: Reached) -> str:
    least = f"{found.saturating:,.0f}" if found.saturating >= 1 else "1"
    if found.surely_saturating is None or found.surely_saturating < found.saturating * 1.01:
        return f"{least} in flight (Little's law: the bound × the idle latency)"
    surely = f"{found.surely_saturating:,.0f} to be within {100 * TOLERANCE:.0f} %"
    return f"{least} in flight at least (Little's law), {surely} whatever chance does"


def _reached(found: Reached) -> str:
    most = format_rate(found.at_most_iops)
    if found.at_least_iops is None:
        return f"at most {most}"
    if found.at_least_iops >= (1 - TOLERANCE / 10) * found.at_most_iops:
        return most
    return f"{format_rate(found.at_least_iops)} to {most}"


def _amplification(explained: Explanation, found: Bound) -> str:
    factor, moving = found.write_amplification, found.cleaning.amplification
    if explained.blocks is None or moving <= 1:
        return f"{factor:.3f}: what is overwritten in order leaves nothing to move"
    spare, timing = explained.blocks.spare_factor - 1, explained.profile.timing
    whole = f" = {factor / moving:.3g} for whole units × {moving:.3f}" if factor / moving > 1.0005 else ""
    return (
        f"{factor:.3f}{whole} for writes all over the drive, by {timing.nand.victim} victims with "
        f"{100 * spare:.3g} % of spare space"
    )
