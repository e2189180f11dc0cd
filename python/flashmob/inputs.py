"""Files of settings, which people write: read with a bound, and refused in one sentence."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from flashmob.errors import ConfigError

_MOST_BYTES = 1 << 20


def read_settings(file: Path, what: str) -> str:
    """The text of a file; `what` names it in errors. A pipe is read to its end, a device without one is not.

    Raises:
        ConfigError: if it is larger than any file of settings; an OSError or ValueError where it is no readable text.
    """
    with file.open("rb") as opened:
        text = opened.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ConfigError(f"{what}: is larger than any file of settings; name one, which is TOML text")
    return text.decode("utf-8-sig")


def parse_settings(text: str, where: str) -> dict[str, Any]:
    """TOML as data; `where` names it in errors.

    Raises:
        ConfigError: if it is none, or holds what no name or path can hold.
    """
    try:
        data = tomllib.loads(text)
        key = _with_zero(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is not valid TOML: {error}; correct that line") from None
    if key is not None:
        raise ConfigError(f"{where}: {key} holds a zero character (\\u0000), which ends a name; remove it")
    return data


def _with_zero(data: dict[str, Any]) -> str | None:
    """The name of a key whose text, or list of texts, holds one; however deep it lies."""
    left: list[tuple[str, Any]] = [("", data)]
    while left:
        name, value = left.pop()
        if isinstance(value, str) and "\0" in value:
            return name
        if isinstance(value, dict):
            left.extend(value.items())
        elif isinstance(value, list):
            left.extend((name, one) for one in value)
    return None
