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


def _with_zero(value: Any, key: str = "") -> str | None:
    """The key of the first text that holds one."""
    if isinstance(value, str):
        return key if "\0" in value else None
    inner: Any = ()
    if isinstance(value, dict):
        inner = ((f"{key}.{name}" if key else name, one) for name, one in value.items())
    elif isinstance(value, list):
        inner = ((f"{key}[{number}]", one) for number, one in enumerate(value))
    return next((found for name, one in inner if (found := _with_zero(one, name)) is not None), None)
