"""From what pydantic found wrong to one sentence that names place, key and fix."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from flashmob.models import OUTSIDE_KEYS, Profile, model_in
from flashmob.units import exact_duration, exact_size


def explain(
    error: ValidationError,
    model: type[BaseModel],
    where: str,
    overridden: Iterable[str] = (),
    named: Mapping[str, str] | None = None,
) -> str:
    """One sentence for the first thing that pydantic found wrong: where, key, value and fix.

    Args:
        error: what pydantic raised.
        model: which model it checked.
        where: the file or the group of options that was checked.
        overridden: dotted keys that --set gave.
        named: dotted keys that an option of its own gave -> that option with its value, as the user wrote it.
    """
    details = error.errors(include_url=False)
    first = next((detail for detail in details if detail["type"] == "extra_forbidden"), details[0])
    loc = [part for part in first["loc"] if not isinstance(part, str) or not part.startswith("function-")]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
    dotted = ".".join(str(part) for part in loc)
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    # A check of a whole table begins with the key at fault, which nobody wrote who wrote the option.
    at_fault, _, rest = _fix(first).partition(" = ")
    if rest and (option := (named or {}).get(".".join((*map(str, loc), at_fault)))):
        return f"{option} is not possible: {rest}{more}"
    if option := _option_at(loc, named or {}):
        return f"{option} is not possible: {_fix(first)}{more}"
    by_hand = [one for one in overridden if dotted == one or dotted.startswith(f"{one}.")]
    place = f"--set {dotted}" if by_hand else f"{where}: {key[:200]}"
    if first["type"] == "extra_forbidden" and dotted == "ssd" and not by_hand:
        return f"{where} is a lab, not a profile; flashmob serve --config {where} serves its SSDs"
    if first["type"] == "extra_forbidden":
        known = _fields_at(model, loc[:-1])
        hint = did_you_mean(str(loc[-1]), known) or f"; use one of {', '.join(known)}"
        return f"{place} is not a known key{hint}{more}"
    if first["type"] == "value_error" and not loc:
        return f"{where}: {_without_prefix(first['msg'])}{more}"
    if first["type"] == "value_error" and loc and _model_at(model, loc) is not None:
        below = [key for key in overridden if key.startswith(f"{dotted}.")]
        if below:
            place = f"--set {below[0]}"
        return f"{place}: {_without_prefix(first['msg'])}{more}"
    # A table may hold a key, and a key for one of its entries stands in the error of another.
    is_secret = (bool(loc) and str(loc[-1]).endswith("key")) or isinstance(first["input"], Mapping | list | tuple)
    value = "" if is_secret else f" = {short(first['input'])}"
    return f"{place}{value} is not possible: {_fix(first)}{more}"


def _option_at(loc: Sequence[Any], named: Mapping[str, str]) -> str:
    """The option that gave a key, an item of its list, or a part of the table that is wrong as a whole."""
    for length in range(len(loc), 0, -1):
        dotted = ".".join(str(part) for part in loc[:length])
        if dotted in named:
            return named[dotted]
    whole = ".".join(str(part) for part in loc)
    return next((option for key, option in named.items() if whole and key.startswith(f"{whole}.")), "")


_FIXES = {
    "greater_than_equal": "use at least {ge}",
    "greater_than": "use more than {gt}",
    "multiple_of": "use a multiple of {multiple_of}",
    "less_than_equal": "use at most {le}",
    "literal_error": "use {expected}",
    "string_too_long": "use at most {max_length} characters",
    "string_pattern_mismatch": "use printable ASCII text that matches {pattern}",
    "too_long": "use at most {max_length} items",
    "model_type": "write a table of key = value lines",
    "tuple_type": "write a list",
    "dict_type": "write a table of key = value lines",
    "mapping_type": "write a table of key = value lines",
    "list_type": "write a list",
    "string_type": "write text in quotes",
    "bool_parsing": "use true or false",
    "bool_type": "use true or false",
    "missing": "give it a value",
}


def _fix(detail: Mapping[str, Any]) -> str:
    template = _FIXES.get(detail["type"])
    if detail["type"] in ("tuple_type", "list_type") and isinstance(detail["input"], Mapping):
        name = ".".join(part for part in detail["loc"] if isinstance(part, str))
        return f"write [[{name}]] rather than [{name}], for there may be several"
    if template is None:
        return _without_prefix(detail["msg"])
    key = str(detail["loc"][-1]) if detail["loc"] else ""
    limits = detail.get("ctx", {})
    return template.format(**(limits | {name: _limit(key, value) for name, value in limits.items()}))


def _limit(key: str, value: Any) -> Any:
    """A limit as it would be written: sizes and times with their unit, and a billion without its fraction."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    return exact_size(value) if key.endswith("_bytes") else exact_duration(value) if key.endswith("_ns") else value


def _without_prefix(message: str) -> str:
    return message.removeprefix("Value error, ")


def _model_at(model: type[BaseModel], loc: Sequence[Any]) -> type[BaseModel] | None:
    current: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, int):
            continue
        if current is None:
            return None
        fields = {field.alias or name: field for name, field in current.model_fields.items()}
        if part not in fields:
            return None
        current = model_in(fields[part].annotation)
    return current


def _fields_at(model: type[BaseModel], loc: Sequence[Any]) -> list[str]:
    found = _model_at(model, loc)
    if found is None:
        return []
    hidden = OUTSIDE_KEYS if found is Profile else ()
    return [field.alias or name for name, field in found.model_fields.items() if name not in hidden]


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The known key that was probably meant, in brackets, for within a sentence; empty if none is close."""
    close = difflib.get_close_matches(word[:100], known, n=1, cutoff=0.6)
    if not close:
        # A key without its table, "read_iops" for "timing.read_iops", is the commonest mistake.
        close = [key for key in known if key.rpartition(".")[2] == word][:1]
    return f' (did you mean "{close[0]}"?)' if close else ""


def short(value: object) -> str:
    """A value as text of bounded length, for messages."""
    shortened = reprlib.Repr()
    shortened.maxstring = shortened.maxother = 60
    return shortened.repr(value)
