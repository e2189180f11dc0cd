"""Closed-form bounds of a device: how many requests a second each of its resources lets through, and the idle latency.

The formulas stand here once. Timing.rate_at() and idle_latency_ns(), and with them profiles, the Python API and
`flashmob explain`, all use them. They say what the models in src/timing do when nothing waits for anything else; how
long requests wait for each other is no part of them.

Rates are requests per second, sizes bytes, times ns. Requests begin at multiples of their own size, as those of
`flashmob bench` do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from flashmob.models import Nand, Timing

Direction = Literal["read", "write"]
# How the data lie that are read: written one after another over the whole drive, in requests as large as the reads
# at random places, or unit by unit at random places.
Layout = Literal["sequential", "together", "apart"]
Rates = dict[str, float]

# Names of resources. Those of a model are a part of the JSON that `flashmob explain` writes.
DIES, CHANNELS, PROGRAM_SHARE, BUFFER = "dies", "channels", "program share", "write buffer"
CONTROLLER, TO_HOST, TO_DRIVE = "controller", "link to host", "link to drive"
INSTANCES, READ_BYTES, WRITE_BYTES = "instances", "bytes read", "bytes written"


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What garbage collection costs for each unit that a host writes; by default nothing is collected.

    Attributes:
        amplification: units programmed for each unit that a host writes, itself among them.
        senses: page reads for each unit that a host writes.
        erases: whether superblocks are erased, as they are once the drive was written full.
    """

    amplification: float = 1.0
    senses: float = 0.0
    erases: bool = False


FRESH = Cleaning()


def touched(bytes_: int, piece_bytes: int) -> float:
    """How many pieces of a space cut into equal ones a request touches, on average over its places."""
    return (bytes_ + piece_bytes - math.gcd(bytes_, piece_bytes)) / piece_bytes


def mixed(parts: Sequence[tuple[float, Rates]]) -> Rates:
    """The rates of a load that is made of others: (share of the requests, rates of that part) pairs.

    A resource that a part does not use has no rate there.
    """
    if len(parts) == 1:
        return dict(parts[0][1])
    names = dict.fromkeys(name for _, rates in parts for name in rates)
    return {name: 1 / sum(share / rates[name] for share, rates in parts if name in rates) for name in names}


def rates(
    timing: Timing,
    direction: Direction,
    bytes_: int,
    cleaning: Cleaning = FRESH,
    layout: Layout = "sequential",
    *,
    is_in_order: bool = False,
) -> Rates:
    """Requests per second that each resource lets through; empty without a model.

    Args:
        timing: the device's [timing].
        direction: read or write.
        bytes_: of one request.
        cleaning: what garbage collection adds to writes; of model nand alone.
        layout: how the data lie that are read; of model nand alone.
        is_in_order: writes follow one another, so that the parts of a unit join in the buffer; of model nand alone.
    """
    if timing.model == "simple":
        return _simple_rates(timing, direction, bytes_)
    if timing.model == "none":
        return {}
    if direction == "read":
        return _nand_read_rates(timing, bytes_, layout)
    return _nand_write_rates(timing, bytes_, units_written(bytes_, timing.unit_bytes, is_in_order), cleaning)


def rate(timing: Timing, direction: Direction, bytes_: int) -> float:
    """What the narrowest resource of a new device lets through; infinite without a model.

    Before garbage is collected, and where there is an SLC cache, while it takes what is written.
    """
    if timing.model == "nand" and direction == "write" and has_cache(timing.nand) and timing.nand.slc_program_ns:
        return min(rates_of_cache(timing, bytes_).values())
    return min(rates(timing, direction, bytes_).values(), default=math.inf)


def rates_of_cache(timing: Timing, bytes_: int) -> Rates:
    """Writes per second that each resource lets through while the SLC cache takes them."""
    # A row of cells that hold one bit is a page on all planes, and has a row's place in the buffer.
    nand = timing.nand.model_copy(
        update={
            "bits_per_cell": 1,
            "program_ns": timing.nand.slc_program_ns,
            "buffer_bytes": buffer_rows(timing.nand) * group_bytes(timing.nand),
        }
    )
    units = touched(bytes_, timing.unit_bytes)
    return _nand_write_rates(timing.model_copy(update={"nand": nand}), bytes_, units, FRESH)


def has_cache(nand: Nand) -> bool:
    """Whether cells that hold one bit each take what hosts write, while they have room."""
    return nand.slc_fixed + nand.slc_dynamic > 0


def units_written(bytes_: int, unit_bytes: int, is_in_order: bool) -> float:
    """How many units a write programs: those that it touches, or its part of them where the next writes the rest."""
    return bytes_ / unit_bytes if is_in_order else touched(bytes_, unit_bytes)


def _simple_rates(timing: Timing, direction: Direction, bytes_: int) -> Rates:
    is_read = direction == "read"
    iops = timing.read_iops if is_read else timing.write_iops
    found = {INSTANCES: iops / touched(bytes_, timing.unit_bytes)}
    if limit := timing.read_bytes_per_s if is_read else timing.write_bytes_per_s:
        found[READ_BYTES if is_read else WRITE_BYTES] = limit / bytes_
    if timing.link_bytes_per_s:
        found[TO_HOST if is_read else TO_DRIVE] = timing.link_bytes_per_s / bytes_
    return found


def group_bytes(nand: Nand) -> int:
    """What one sensing brings: a page on all planes of a die."""
    return nand.page_bytes * nand.planes


def row_bytes(nand: Nand) -> int:
    """What a die programs at once: a word line on all its planes."""
    return group_bytes(nand) * nand.bits_per_cell


def dies(nand: Nand) -> int:
    """All dies of the drive."""
    return nand.channels * nand.dies_per_channel


def sensing_ns(nand: Nand) -> float:
    """To sense a page, the mean over the pages of a cell."""
    return sum(nand.read_ns) / len(nand.read_ns)


def buffer_rows(nand: Nand) -> int:
    """Rows of hosts that may be on their way to the dies; moved data have buffers of their own (row_slots.h)."""
    return nand.buffer_bytes // row_bytes(nand)


def transfer_ns(nand: Nand) -> float:
    """A row's way over a channel of which programs may take their share."""
    return row_bytes(nand) * 1e9 / (nand.channel_bytes_per_s * nand.program_share)


def senses_of_read(nand: Nand, bytes_: int, unit_bytes: int, layout: Layout) -> float:
    """How often a request senses a page."""
    units = touched(bytes_, unit_bytes)
    if layout == "apart":
        return units
    if layout == "together":
        # The first unit lies anywhere in a page of all planes.
        return 1 + (units - 1) * unit_bytes / group_bytes(nand)
    return touched(bytes_, group_bytes(nand))


def _nand_read_rates(timing: Timing, bytes_: int, layout: Layout) -> Rates:
    nand, unit_bytes = timing.nand, timing.unit_bytes
    units = touched(bytes_, unit_bytes)
    # Of a single unit the part that is asked for crosses the channel, of several all of each.
    moved = bytes_ if units == 1 else units * unit_bytes
    busy_ns = senses_of_read(nand, bytes_, unit_bytes, layout) * sensing_ns(nand)
    found = {DIES: dies(nand) * 1e9 / busy_ns, CHANNELS: nand.channels * nand.channel_bytes_per_s / moved}
    return found | _ways(timing, bytes_, TO_HOST)


def _nand_write_rates(timing: Timing, bytes_: int, units: float, cleaning: Cleaning) -> Rates:
    nand, unit_bytes = timing.nand, timing.unit_bytes
    programmed = units * unit_bytes * cleaning.amplification
    rows = programmed / row_bytes(nand)
    hosts_rows = units * unit_bytes / row_bytes(nand)
    busy_ns = rows * nand.program_ns + units * cleaning.senses * sensing_ns(nand)
    if cleaning.erases:
        busy_ns += rows * nand.erase_ns / nand.word_lines
    collected = (cleaning.amplification - 1) * units * unit_bytes
    all_channels = nand.channels * nand.channel_bytes_per_s
    found = {
        DIES: dies(nand) * 1e9 / busy_ns,
        CHANNELS: all_channels / (programmed + collected),
        PROGRAM_SHARE: nand.program_share * all_channels / programmed,
        BUFFER: buffer_rows(nand) * 1e9 / (hosts_rows * (nand.program_ns + transfer_ns(nand))),
    }
    return found | _ways(timing, bytes_, TO_DRIVE)


def _ways(timing: Timing, bytes_: int, link: str) -> Rates:
    found = {}
    if timing.nand.firmware_ns:
        found[CONTROLLER] = timing.nand.cores * 1e9 / timing.nand.firmware_ns
    if timing.link_bytes_per_s:
        found[link] = timing.link_bytes_per_s / bytes_
    return found


def latency_parts_ns(timing: Timing, direction: Direction, bytes_: int) -> dict[str, float]:
    """How long each part of a request takes on an idle device, in the order in which they come; empty without a model.

    Of model nand a read is the mean over the pages of a cell, of data that lie one after another; a write is answered
    from the buffer, which has room.
    """
    if timing.model == "none":
        return {}
    if timing.model == "simple":
        return _simple_latency_ns(timing, direction, bytes_)
    nand = timing.nand
    if direction == "write":
        return {
            "firmware": float(nand.firmware_ns),
            "link": _link_ns(timing, bytes_),
            "buffer": float(nand.buffer_write_ns),
        }
    if bytes_ > group_bytes(nand):
        return _large_read_ns(timing, bytes_)
    units = touched(bytes_, timing.unit_bytes)
    moved = bytes_ if units == 1 else units * timing.unit_bytes
    return {
        "firmware": float(nand.firmware_ns),
        "sensing": sensing_ns(nand),
        "channel": moved * 1e9 / nand.channel_bytes_per_s,
        "correction": float(nand.correction_ns),
        "link": _link_ns(timing, bytes_),
    }


def idle_latency_ns(timing: Timing, direction: Direction) -> int:
    """Of a request of one unit on an idle device; 0 without a model."""
    if timing.model == "simple":
        return timing.read_latency_ns if direction == "read" else timing.write_latency_ns
    return round(sum(latency_parts_ns(timing, direction, timing.unit_bytes).values()))


def _link_ns(timing: Timing, bytes_: int) -> float:
    return bytes_ * 1e9 / timing.link_bytes_per_s if timing.link_bytes_per_s else 0.0


def _simple_latency_ns(timing: Timing, direction: Direction, bytes_: int) -> dict[str, float]:
    """The latency of the first unit; what an instance that serves several adds; what the data's way adds."""
    latency_ns = timing.read_latency_ns if direction == "read" else timing.write_latency_ns
    rounds = math.ceil(touched(bytes_, timing.unit_bytes) / timing.instances)
    served_ns = latency_ns + (rounds - 1) * timing.service_ns(direction)
    limit = timing.limit_bytes_per_s(direction)
    # The latency holds one unit's transfer, as far as it is long enough.
    unit_ns = timing.unit_bytes * 1e9 / limit if limit else 0.0
    arrived_ns = bytes_ * 1e9 / limit + latency_ns - min(latency_ns, unit_ns) if limit else 0.0
    return {
        "latency": float(latency_ns),
        "further units": served_ns - latency_ns,
        "data": max(0.0, arrived_ns - served_ns),
    }


def _large_read_ns(timing: Timing, bytes_: int) -> dict[str, float]:
    """A read of more than one sensing: the parts of the way of that which arrives last.

    Pages of one row lie on one die and are sensed one after another; the next row lies on another channel.
    """
    nand = timing.nand
    count = math.ceil(bytes_ / group_bytes(nand))
    phases = sorted({number * count % nand.bits_per_cell for number in range(nand.bits_per_cell)})
    sums = dict.fromkeys(("firmware", "sensing", "channel", "correction", "link"), 0.0)
    for phase in phases:
        for name, part_ns in _walk_ns(timing, bytes_, count, phase).items():
            sums[name] += part_ns / len(phases)
    return sums


def _walk_ns(timing: Timing, bytes_: int, count: int, phase: int) -> dict[str, float]:
    """One read of `count` pages whose first is page `phase` of its cells."""
    nand = timing.nand
    sensed_ns = dict[int, float]()
    crossed_ns = dict[int, float]()
    pages = list[tuple[float, float, int]]()  # when each is at the link, when it was sensed, its bytes
    for number in range(count):
        die = (phase + number) // nand.bits_per_cell % dies(nand)
        channel = die % nand.channels
        part_bytes = min(group_bytes(nand), bytes_ - number * group_bytes(nand))
        sensed = sensed_ns.get(die, 0.0) + nand.read_ns[(phase + number) % nand.bits_per_cell]
        crossed = max(crossed_ns.get(channel, 0.0), sensed) + part_bytes * 1e9 / nand.channel_bytes_per_s
        sensed_ns[die], crossed_ns[channel] = sensed, crossed
        pages.append((crossed + nand.correction_ns, sensed, part_bytes))
    arrived_ns = 0.0
    for there_ns, _, part_bytes in sorted(pages):
        arrived_ns = max(arrived_ns, there_ns) + _link_ns(timing, part_bytes)
    last_there_ns, last_sensed_ns, _ = max(pages)
    return {
        "firmware": float(nand.firmware_ns),
        "sensing": last_sensed_ns,
        "channel": last_there_ns - nand.correction_ns - last_sensed_ns,
        "correction": float(nand.correction_ns),
        "link": arrived_ns - last_there_ns,
    }
