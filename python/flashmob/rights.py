"""What hosts of a served SSD may do: levels of rights, each with all of those before it, for all doors or for one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

Level = Literal["read-only", "io", "admin", "manage"]
LEVELS = ("read-only", "io", "admin", "manage")
# As one writes them in a rule -> the keys of an SSD's doors.
DOORS = {"vfio-user": "vfio_user", "tcp": "tcp"}


def levels_by_door(rules: Iterable[str]) -> dict[str, str]:
    """Each rule's door ("" for all of them) -> its level.

    Raises:
        ValueError: with the fix.
    """
    levels: dict[str, str] = {}
    for rule in rules:
        door, given, level = rule.rpartition("=")
        if (given and door not in DOORS) or level not in LEVELS:
            raise ValueError(f"write [DOOR=]LEVEL: a level of {', '.join(LEVELS)}; a door of {', '.join(DOORS)}")
        if door in levels:
            raise ValueError(f"{f'the door {door}' if door else 'all doors'} can have one level; leave all but one out")
        levels[door] = level
    return levels


def _checked(rules: tuple[str, ...]) -> tuple[str, ...]:
    levels_by_door(rules)
    return rules


Allow = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    AfterValidator(_checked),
]
