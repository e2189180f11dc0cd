"""What the closed forms of a device do not hold, in sentences: each says what happens there, and with which figures."""

from __future__ import annotations

import math
from collections.abc import Iterator

from flashmob import bounds
from flashmob.bottleneck import TOLERANCE, Bound, Drive, Load, Reached, is_by_turns
from flashmob.units import format_rate, format_size


def notes(drive: Drive, load: Load, fresh: Bound, steady: Bound | None, reached: Reached) -> list[str]:
    """One sentence for each thing that the figures do not hold."""
    found = list(_waiting(drive, load, reached))
    if drive.timing.model == "nand":
        found += [*_placing(drive, load), *_suspending(fresh, steady), *_collecting(drive, load, steady)]
    return found


def _waiting(drive: Drive, load: Load, reached: Reached) -> Iterator[str]:
    timing = drive.timing
    if load.reads and load.writes:
        others = "programs and erases" if timing.model == "nand" else "writes"
        yield (
            f"Reads wait for {others}: what a depth comes to, below the bound, and every latency but the idle one "
            "take simulation."
        )
    elif reached.at_least_iops is not None and reached.at_least_iops < (1 - TOLERANCE) * reached.at_most_iops:
        servers = "dies" if timing.model == "nand" else "instances"
        yield (
            f"Chance spreads requests over the {servers}: some have several to serve while others have none, and how "
            "far that goes between the two rates takes simulation."
        )
    elif reached.at_least_iops is None and not is_by_turns(timing, load) and not load.is_random:
        servers = "dies" if timing.model == "nand" else "instances"
        yield (
            f"Requests that follow one another meet on the same {servers}, so that fewer work than the depth suggests: "
            "what it comes to takes simulation."
        )


def _placing(drive: Drive, load: Load) -> Iterator[str]:
    timing, nand = drive.timing, drive.timing.nand
    rows = drive.data_bytes / bounds.row_bytes(nand)
    if rows and load.reads and load.is_random:
        fullest = math.ceil(rows / bounds.dies(nand)) * bounds.dies(nand) / rows
        if fullest > 1 + TOLERANCE:
            yield (
                f"{format_size(drive.data_bytes)} are few rows for {bounds.dies(nand)} dies: some hold {fullest:.2f} "
                "times what they would of a large drive, and random reads of data in order come to as much less; "
                "--size takes a larger one."
            )
    largest = max(bytes_ for bytes_, _ in load.sizes)
    if load.reads and not load.writes and largest > timing.unit_bytes:
        apart = bounds.mixed(
            [(share, bounds.rates(timing, "read", bytes_, layout="apart")) for bytes_, share in load.sizes]
        )
        yield (
            f"The data lie in the order of their blocks; had they been written in pieces of "
            f"{format_size(timing.unit_bytes)} at random places, each piece would be sensed apart: "
            f"{format_rate(min(apart.values()))}."
        )
    smallest = min(bytes_ for bytes_, _ in load.sizes)
    if load.writes and load.is_random and smallest % timing.unit_bytes:
        times = bounds.touched(smallest, timing.unit_bytes) * timing.unit_bytes / smallest
        yield (
            f"A write of {format_size(smallest)} takes whole units of {format_size(timing.unit_bytes)}: {times:.3g} "
            "times its bytes are programmed, less where others write the rest while it is in the buffer."
        )


def _suspending(fresh: Bound, steady: Bound | None) -> Iterator[str]:
    for state, name in ((fresh, "before garbage is collected"), (steady, "in steady state")):
        if state is not None and state.suspended_iops is not None:
            lower = min(state.iops, state.suspended_iops)
            if lower < (1 - TOLERANCE) * state.iops:
                yield (
                    f"A read that suspends a program takes the die's time beyond its own; if each did, the rate "
                    f"{name} would be {format_rate(lower)}."
                )


def _collecting(drive: Drive, load: Load, steady: Bound | None) -> Iterator[str]:
    nand = drive.timing.nand
    if not load.writes:
        return
    if bounds.has_cache(nand):
        rate = ""
        if nand.slc_program_ns:
            fast = bounds.mixed([(share, bounds.rates_of_cache(drive.timing, bytes_)) for bytes_, share in load.sizes])
            rate = f", {format_rate(min(fast.values()))},"
        yield (
            f"Writes are as fast as its cells of one bit{rate} until that SLC cache is full: these figures begin "
            "behind it."
        )
        if steady is not None:
            yield (
                "In steady state hosts write to that cache, too, and collection moves it on: rate and amplification "
                "differ by some 10 % from these figures, which do not know it, and by more where the drive is idle "
                "now and then."
            )
    if steady is None:
        yield "The medium is a file, whose size is not looked at; --size gives one, for the steady state."
        return
    if steady.cleaning.amplification <= 1:
        return
    if nand.victim == "random":
        yield (
            "Where chance hits a superblock that is open, or has no garbage, the model takes the best one instead: "
            "amplification is an upper bound, near only where superblocks are many and large."
        )
    if len(load.sizes) > 1:
        yield "Amplification is that of requests of the mean size."
