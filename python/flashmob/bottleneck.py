"""What limits a device under a load: which resource is saturated first, what lifts it, what a depth comes to.

Everything here is in closed form. Where requests wait for each other by chance, two bounds stand in place of a figure;
bottleneck_notes.py says in words what the figures do not hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from flashmob import bounds
from flashmob.amplification import Superblocks, cleaning_of_random_writes, superblocks
from flashmob.bounds import FRESH, Cleaning, Direction, Rates
from flashmob.models import Profile, Timing
from flashmob.options import BenchOptions

# A rate this near to its bound counts as saturated; as near the figures come to simulation.
TOLERANCE = 0.03


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a device, in the terms that matter here.

    Attributes:
        read_share: of the requests.
        sizes: (bytes, share of the requests) pairs.
        is_random: whether places are drawn at random rather than taken one after another.
        in_flight: requests of a closed loop.
    """

    read_share: float
    sizes: tuple[tuple[int, float], ...]
    is_random: bool
    in_flight: int

    @classmethod
    def of(cls, options: BenchOptions) -> Load:
        """The load that options of a benchmark describe."""
        weights = sum(weight for _, weight in options.block_sizes)
        read_share = {"read": 1.0, "write": 0.0}.get(options.rw.removeprefix("rand"), options.read_share)
        return cls(
            read_share=read_share,
            sizes=tuple((bytes_, weight / weights) for bytes_, weight in options.block_sizes),
            is_random=options.rw.startswith("rand"),
            in_flight=options.in_flight(),
        )

    @property
    def reads(self) -> bool:
        """Whether anything is read."""
        return self.read_share > 0

    @property
    def writes(self) -> bool:
        """Whether anything is written."""
        return self.read_share < 1

    def parts(self) -> list[tuple[Direction, int, float]]:
        """(direction, bytes, share of the requests) of all that there is."""
        shares: tuple[tuple[Direction, float], ...] = (("read", self.read_share), ("write", 1 - self.read_share))
        return [
            (direction, bytes_, share * part) for direction, share in shares if share > 0 for bytes_, part in self.sizes
        ]

    def mean_bytes(self) -> float:
        """Of a request."""
        return sum(bytes_ * share for bytes_, share in self.sizes)


@dataclass(frozen=True, slots=True)
class Drive:
    """A device as far as it matters here. Sizes in bytes, 0 where a file that is not looked at gives them.

    Attributes:
        timing: its [timing].
        capacity_bytes: of all namespaces, and what may still be given to some.
        data_bytes: of all namespaces.
    """

    timing: Timing
    capacity_bytes: int
    data_bytes: int

    @classmethod
    def of(cls, profile: Profile) -> Drive:
        """The device of a profile."""
        sizes = [namespace.size_bytes for namespace in profile.subsystem.namespaces]
        data_bytes = 0 if 0 in sizes else sum(sizes)
        return cls(profile.timing, data_bytes + profile.subsystem.spare_capacity_bytes, data_bytes)

    def superblocks(self) -> Superblocks | None:
        """How its flash is cut; None for other models than nand, and where its size is not known."""
        if self.timing.model != "nand" or not self.data_bytes:
            return None
        return superblocks(self.timing, self.capacity_bytes, self.data_bytes)


@dataclass(frozen=True, slots=True)
class Bound:
    """The bounds of a device's resources in one state of it.

    Attributes:
        rates: resource -> requests per second.
        cleaning: what garbage collection costs.
        write_amplification: bytes programmed for each byte that hosts write; 1 without a model of the medium.
        suspended_iops: what the dies let through if each read suspends a program of its own; None where suspending
            takes no time, or does not occur.
    """

    rates: Rates
    cleaning: Cleaning = FRESH
    write_amplification: float = 1.0
    suspended_iops: float | None = None

    @property
    def bottleneck(self) -> str:
        """The resource that is saturated first."""
        return min(self.rates, key=lambda name: self.rates[name])

    @property
    def iops(self) -> float:
        """Requests per second that it lets through."""
        return self.rates[self.bottleneck]

    def busy_share(self, resource: str) -> float:
        """How busy a resource is when the first one is saturated."""
        return self.iops / self.rates[resource]


@dataclass(frozen=True, slots=True)
class Reached:
    """What a closed loop comes to, requests per second, in the fresh state.

    Attributes:
        at_most_iops: it is no faster.
        at_least_iops: it is no slower; None where that needs simulation.
        saturating: requests in flight without which the first resource cannot be saturated (Little's law).
        surely_saturating: with so many it is within TOLERANCE, however chance spreads them; None as above.
    """

    at_most_iops: float
    at_least_iops: float | None
    saturating: float
    surely_saturating: float | None


def bound(drive: Drive, load: Load, *, is_steady: bool) -> Bound:
    """The bounds of a drive that was written once from its first block to its last, or in steady state."""
    cleaning = _cleaning(drive, load) if is_steady else FRESH
    layout: bounds.Layout = "together" if is_steady and load.is_random else "sequential"
    rates = bounds.mixed(
        [
            (
                share,
                bounds.rates(drive.timing, direction, bytes_, cleaning, layout, is_in_order=not load.is_random),
            )
            for direction, bytes_, share in load.parts()
        ]
    )
    suspended = _suspended_iops(drive.timing, load, rates, cleaning, layout)
    return Bound(rates, cleaning, _write_amplification(drive.timing, load, cleaning), suspended)


def _write_amplification(timing: Timing, load: Load, cleaning: Cleaning) -> float:
    """Whole units are programmed, whatever part of them was written, and again where they are moved."""
    if timing.model != "nand" or not load.writes:
        return 1.0
    units = sum(
        bounds.units_written(bytes_, timing.unit_bytes, not load.is_random) * share for bytes_, share in load.sizes
    )
    return cleaning.amplification * units * timing.unit_bytes / load.mean_bytes()


def _cleaning(drive: Drive, load: Load) -> Cleaning:
    """Sequential overwrites leave whole superblocks of garbage; nothing has to be moved."""
    blocks = drive.superblocks()
    if blocks is None or not load.is_random:
        return Cleaning(erases=True)
    units = sum(bounds.touched(bytes_, drive.timing.unit_bytes) * share for bytes_, share in load.sizes)
    return cleaning_of_random_writes(drive.timing, blocks, units)


def _suspended_iops(
    timing: Timing, load: Load, rates: Rates, cleaning: Cleaning, layout: bounds.Layout
) -> float | None:
    nand = timing.nand
    lost_ns = nand.suspend_ns + nand.resume_ns
    if timing.model != "nand" or not (nand.suspend_ns and load.writes):
        return None
    senses = 0.0
    for direction, bytes_, share in load.parts():
        if direction == "read":
            senses += share * bounds.senses_of_read(nand, bytes_, timing.unit_bytes, layout)
        else:
            senses += share * bounds.touched(bytes_, timing.unit_bytes) * cleaning.senses
    if not senses:
        return None
    return 1e9 / (1e9 / rates[bounds.DIES] + senses * lost_ns / bounds.dies(nand))


def idle_latency_ns(timing: Timing, load: Load) -> dict[Direction, dict[str, float]]:
    """Direction -> part of the way -> time on an idle device, the mean over the load's sizes."""
    found: dict[Direction, dict[str, float]] = {}
    for direction, bytes_, _ in load.parts():
        share = dict(load.sizes)[bytes_]
        sums = found.setdefault(direction, {})
        for name, part_ns in bounds.latency_parts_ns(timing, direction, bytes_).items():
            sums[name] = sums.get(name, 0.0) + share * part_ns
    return found


def reached(timing: Timing, load: Load, fresh: Bound) -> Reached:
    """What the load's closed loop comes to in the fresh state.

    No loop is faster than its requests' idle latencies and the narrowest resource allow. How much slower chance makes
    one is bounded by what it would be were service times exponential, as those here are steadier than that.
    """
    latency_ns = _mean_latency_ns(timing, load)
    at_most = min(load.in_flight * 1e9 / latency_ns, fresh.iops) if latency_ns else fresh.iops
    saturating = fresh.iops * latency_ns / 1e9
    if is_by_turns(timing, load):
        return Reached(at_most, at_most, saturating, saturating)
    if not is_by_chance(load):
        return Reached(at_most, None, saturating, None)
    slowest_ns = latency_ns + (load.in_flight - 1) * 1e9 / fresh.iops
    surely = max(1.0, (1 - TOLERANCE) * (saturating - 1) / TOLERANCE)
    return Reached(at_most, load.in_flight * 1e9 / slowest_ns, saturating, surely)


def is_by_turns(timing: Timing, load: Load) -> bool:
    """Whether requests wait for one server after another in their turn, so that nothing is left to chance."""
    if len(load.sizes) > 1:
        return False
    if timing.model == "simple":
        return timing.instances == 1 and not (load.reads and load.writes)
    return not load.reads  # The buffer takes writes in their turn and spreads them over the dies.


def is_by_chance(load: Load) -> bool:
    """Whether requests spread over equal servers by chance, and none of them is held up by those of another kind."""
    if load.reads and load.writes:
        return False
    return load.is_random


def _mean_latency_ns(timing: Timing, load: Load) -> float:
    return sum(
        share * sum(bounds.latency_parts_ns(timing, direction, bytes_).values())
        for direction, bytes_, share in load.parts()
    )
