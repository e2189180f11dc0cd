"""In which order samples come, and whose they are: pure functions of numbers, the same on every machine.

NumPy's own shuffles may change with its version; what a run resumes from must not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from flashmob.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Remainder: TypeAlias = Literal["uneven", "drop", "repeat"]
REMAINDERS: tuple[str, ...] = get_args(Remainder)
_WORD = 0xFFFF_FFFF_FFFF_FFFF


def epoch_order(count: int, seed: int, epoch: int, *, shuffle: bool = True) -> NDArray[np.int64]:
    """The numbers 0 to count - 1 in the order of an epoch: each sorted by a hash of seed, epoch and itself."""
    numbers = np.arange(count, dtype=np.uint64)
    if not shuffle:
        return numbers.astype(np.int64)
    # A word of its own for each pair: swapping seed and epoch must not give the same order.
    key = _mixed_word(_mixed_word(seed) ^ (epoch & _WORD))
    return np.argsort(_mixed(numbers ^ np.uint64(key)), kind="stable").astype(np.int64)


def shard(order: NDArray[np.int64], rank: int, world: int, remainder: Remainder = "uneven") -> NDArray[np.int64]:
    """What of an order is one of `world` readers': each `world`-th, from `rank` on.

    Args:
        order: of the epoch, all readers' alike.
        rank: which one, from 0.
        world: how many there are.
        remainder: of an order that is no multiple of them: "uneven" gives some readers one more; "drop" leaves the
            last ones out, "repeat" takes the first ones again, so that all have equally many.

    Raises:
        ConfigError: naming the value and the fix.
    """
    if world < 1:
        raise ConfigError(f"world = {world} is not possible: use 1 or more")
    if not 0 <= rank < world:
        raise ConfigError(f"rank = {rank} is not possible: use 0 to {world - 1}, as world is {world}")
    if remainder not in REMAINDERS:
        raise ConfigError(f"remainder = {remainder} is not possible: use {', '.join(REMAINDERS)}")
    over = len(order) % world
    if over and remainder == "drop":
        order = order[: len(order) - over]
    elif over and remainder == "repeat":
        order = np.resize(order, len(order) + world - over)
    return order[rank::world]


def _mixed_word(word: int) -> int:
    return int(_mixed(np.array([word & _WORD], np.uint64))[0])


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64 (Steele, Lea, Flood 2014), as src/base/rng.h has it; products wrap."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
