"""What a study measures: points, each the settings of one measurement, and the order in which they are taken."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from flashmob.errors import ConfigError

Settings: TypeAlias = Mapping[str, Any]
# So much of a hash tells points apart, and still fits into the name of a file.
_KEY_DIGITS = 20
_MOST_REPEATS = 10_000


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement of one point: the repeat-th, counted from 0."""

    settings: Settings
    repeat: int = 0


def grid(**axes: Sequence[Any] | Any) -> list[dict[str, Any]]:
    """Every combination of the axes' values, the last axis first; what is no list is the same at all points."""
    values = [list(axis) if isinstance(axis, list | tuple | range) else [axis] for axis in axes.values()]
    return [dict(zip(axes, chosen, strict=True)) for chosen in itertools.product(*values)]


def key(settings: Settings) -> str:
    """A name that settings have in common with equal ones and with no others, whatever the order of their keys.

    Raises:
        ConfigError: if JSON cannot hold them.
    """
    try:
        text = json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"settings {dict(settings)!r} are not possible: {error}; use numbers, text and lists"
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


def trials(points: Iterable[Settings], *, repeats: int = 1, seed: int = 1) -> list[Trial]:
    """All measurements, in an order drawn from the seed: what drifts on a machine then falls on all points alike.

    A point that is named twice is measured once. Every point is measured once before any is measured again, so that a
    study that is stopped half-way has all of it once.

    Raises:
        ConfigError: if there is none, or JSON cannot hold a point's settings.
    """
    if repeats < 1:
        raise ConfigError(f"repeats={repeats} is not possible: use at least 1")
    if repeats > _MOST_REPEATS:
        raise ConfigError(f"repeats={repeats} is not possible: use at most {_MOST_REPEATS}")
    once = {key(point): point for point in points}
    if not once:
        raise ConfigError("a study has no points; name at least one value for every setting")
    draw = random.Random(seed)
    order: list[Trial] = []
    for repeat in range(repeats):
        keys = sorted(once)
        draw.shuffle(keys)
        order += [Trial(once[name], repeat) for name in keys]
    return order
