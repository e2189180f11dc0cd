"""Write amplification of uniform random overwrites in steady state, in closed form, by how victims are chosen.

The greedy and the d-choices forms are fixed points for many superblocks (Van Houdt, "A mean field model for a class of
garbage collection algorithms in flash-based solid state drives", 2013); with many pages in a superblock the greedy one
becomes that of FIFO cleaning (Desnoyers, "Analytic models of SSD write performance", 2014).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashmob.bounds import Cleaning, group_bytes, row_bytes

if TYPE_CHECKING:
    from flashmob.models import Timing

# As the model has them (src/timing/nand/config.cpp): fewer superblocks would be too coarse, and each namespace that
# there can be begins with a unit of its own.
_FEWEST_SUPERBLOCKS = 256
_MOST_NAMESPACES = 256
# Beside those kept free, one superblock's worth of room holds no data: of the two that are open each is half full.
_OPEN_BLOCKS = 1
# More pages in a superblock change nothing that matters, and take time.
_MOST_PAGES = 65_536
_MOST_PAGES_OF_CHOICES = 1_000


@dataclass(frozen=True, slots=True)
class Superblocks:
    """How a drive's flash is cut.

    Attributes:
        count: superblocks, those that are open or kept free among them.
        units: of one superblock.
        spare_factor: units on the medium, but for those that are open or kept free, to units that hold data.
    """

    count: int
    units: int
    spare_factor: float


def superblocks(timing: Timing, capacity_bytes: int, data_bytes: int) -> Superblocks:
    """The superblocks of a drive of model nand, as the model cuts them.

    Args:
        timing: the device's [timing].
        capacity_bytes: of all namespaces, and what may still be given to some.
        data_bytes: of the blocks that hold data.
    """
    nand = timing.nand
    capacity = -(-capacity_bytes // timing.unit_bytes) + _MOST_NAMESPACES
    physical = math.ceil(capacity * (1 + nand.over_provisioning))
    shortest = row_bytes(nand) // timing.unit_bytes * nand.channels * nand.dies_per_channel
    word_lines = min(max(physical // (_FEWEST_SUPERBLOCKS * shortest), 1), nand.word_lines)
    units = word_lines * shortest
    kept = nand.free_superblocks + 2
    count = -(-physical // units) + kept
    if (count - kept - 1) * units < capacity:
        count += 1
    fixed = math.ceil(nand.slc_fixed * capacity * nand.bits_per_cell / units)
    used = (count - nand.free_superblocks - _OPEN_BLOCKS) * units
    return Superblocks(count + fixed, units, used * timing.unit_bytes / data_bytes)


def cleaning_of_random_writes(timing: Timing, blocks: Superblocks, units: float) -> Cleaning:
    """What garbage collection costs in steady state where requests of so many units overwrite random places.

    The units of a request lie together and become garbage together.
    """
    nand = timing.nand
    pages = max(2, round(blocks.units / units))
    amplification = write_amplification(nand.victim, blocks.spare_factor, pages, nand.choices)
    moved = amplification - 1
    if moved <= 0:
        return Cleaning(1.0, 0.0, erases=True)
    valid_share = moved / amplification
    units_per_sense = group_bytes(nand) // timing.unit_bytes
    # A sensing is spared only where nothing that it would bring is valid.
    requests_per_sense = 1 + (units_per_sense - 1) / units
    sensed_share = 1 - (1 - valid_share) ** requests_per_sense
    return Cleaning(amplification, moved * sensed_share / (units_per_sense * valid_share), erases=True)


def write_amplification(victim: str, spare_factor: float, pages: int, choices: int) -> float:
    """Pages written to the medium for each page that a host overwrites at random.

    Args:
        victim: greedy, fifo, d_choices or random.
        spare_factor: pages on the medium to pages with data: 1 and the over-provisioning.
        pages: in a superblock.
        choices: superblocks that d_choices looks at.

    Raises:
        ValueError: if there is no spare space.
    """
    if spare_factor <= 1:
        raise ValueError("without spare space nothing can be overwritten; use more over-provisioning")
    if victim == "fifo":
        return fifo(spare_factor)
    if victim == "random" or (victim == "d_choices" and choices == 1):
        return spare_factor / (spare_factor - 1)
    if victim == "d_choices":
        return d_choices(spare_factor, min(pages, _MOST_PAGES_OF_CHOICES), choices)
    return greedy(spare_factor, min(pages, _MOST_PAGES))


def fifo(spare_factor: float) -> float:
    """Of the superblock written longest ago: the share x that is valid solves x = exp(-spare_factor (1 - x))."""
    low, high = 0.0, 1 - 1e-12
    # Below the smaller root the right side is larger; the other root is 1.
    high = min(high, 1 / spare_factor)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if math.exp(-spare_factor * (1 - middle)) > middle else (low, middle)
    return 1 / (1 - (low + high) / 2)


def greedy(spare_factor: float, pages: int) -> float:
    """Of the superblock with the fewest valid pages.

    All superblocks are between full and the least valid count that there is; pages of each become garbage in
    proportion to how many are valid. Victims have that count, and a share of them one more.
    """
    valid = pages / spare_factor
    waiting = 1 / pages  # the sum of 1/i over the counts i that no victim has
    for count in range(pages - 2, -1, -1):
        gained = pages - count - 1
        # How the superblocks add up: valid * (waiting + share / (count + 1)) = gained + share.
        slope = valid / (count + 1) - 1
        share = (gained - valid * waiting) / slope if slope else -1.0
        if 0 <= share <= 1:
            return pages / (gained + share)
        waiting += 1 / (count + 1)
    return 1.0


def d_choices(spare_factor: float, pages: int, choices: int) -> float:
    """Of the superblock with the fewest valid pages among some that are drawn at random."""
    low, high = 1 / pages, 1 / (pages * (1 - 1 / spare_factor))
    for _ in range(30):
        cleaned = (low + high) / 2
        low, high = (cleaned, high) if _garbage_made(spare_factor, pages, choices, cleaned) < 1 else (low, cleaned)
    return pages * (low + high) / 2


def _garbage_made(spare_factor: float, pages: int, choices: int, cleaned: float) -> float:
    """Pages that become garbage for each one written, were `cleaned` superblocks cleaned for each: in truth it is 1.

    From the fullest superblocks down: those that reach a count of valid pages are those that were not cleaned before.
    """
    valid = pages / spare_factor
    at_least = made = 0.0  # the share of superblocks with more valid pages than `count`; what they lose
    for count in range(pages, 0, -1):
        # share * count / valid = cleaned * (1 - (at_least + share) ** choices), by Newton's method from above.
        slope = count / (valid * cleaned)
        share = min(1 - at_least, (1 - at_least**choices) / slope)
        for _ in range(8):
            power = (at_least + share) ** (choices - 1)
            share -= (slope * share + (at_least + share) * power - 1) / (slope + choices * power)
        at_least += share
        made += share * count / valid
        if at_least >= 1 - 1e-12:
            break
    return made
