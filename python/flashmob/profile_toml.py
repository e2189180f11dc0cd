"""A profile as the text of a TOML file: to read, to save and to edit. What it prints loads back equal."""

from __future__ import annotations

import json
from typing import Any

from flashmob.models import Profile

_SECTIONS = ("timing", "controller", "engine", "subsystem", "fidelity")
_NAMESPACES = "subsystem.namespaces"


def to_toml(profile: Profile) -> str:
    """Every key of a profile; those that it leaves to their defaults stand behind a #."""
    settings = profile.settings()
    given = profile.given_keys()
    lines = [
        f"# {profile.name}, from `flashmob profiles show {profile.name} --toml`.",
        "# Keys behind a # have their defaults.",
        f"description = {toml_value(profile.description)}",
        *(_line(key, settings[key], key in given) for key in ("seed", "faults")),
    ]
    for section in _SECTIONS:
        lines += ["", f"[{section}]"]
        tables: list[str] = []
        for key, value in settings[section].items():
            dotted = f"{section}.{key}"
            if isinstance(value, dict):
                tables += ["", f"[{dotted}]", *(_line(k, v, f"{dotted}.{k}" in given) for k, v in value.items())]
            elif dotted != _NAMESPACES or value == []:
                lines.append(_line(key, value, dotted in given))
        lines += tables
        if section == "subsystem":
            lines += _namespaces(settings[section]["namespaces"], given)
    if profile.sources:
        lines += ["", "[sources]"]
        lines += [f"{toml_value(key)} = {toml_value(source)}" for key, source in profile.sources.items()]
    return "\n".join(lines) + "\n"


def _namespaces(namespaces: list[dict[str, Any]], given: set[str]) -> list[str]:
    lines: list[str] = []
    are_given = any(key.startswith(_NAMESPACES) for key in given)
    for index, namespace in enumerate(namespaces):
        lines += ["", ("" if are_given else "# ") + f"[[{_NAMESPACES}]]"]
        for key, value in namespace.items():
            lines.append(_line(key, value, f"{_NAMESPACES}.{index}.{key}" in given))
    return lines


def _line(key: str, value: Any, is_given: bool) -> str:
    return f"{'' if is_given else '# '}{key} = {toml_value(value)}"


def toml_value(value: Any) -> str:
    """A value as TOML writes it: numbers grouped by thousands, texts in quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, float):
        return f"{int(value):_}" if value == int(value) else repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    # JSON escapes what TOML wants escaped, but for DEL.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")
