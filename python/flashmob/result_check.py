"""What the fields of a result's document may hold, so that nobody who shows one meets something else.

Fields that are not named here are those of newer versions: whatever they are, nothing looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# No time, rate or count comes near it, and NaN is not below it.
_MOST = 1e21

# What a value should be, and whether it is.
Kind = tuple[str, Callable[[Any], bool]]


class DamageError(ValueError):
    """A field that holds what it cannot."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST


def _or_none(kind: Kind) -> Kind:
    what, fits = kind
    return what, lambda value: value is None or fits(value)


def _is_code(text: str) -> bool:
    try:
        return int(text, 16) >= 0
    except ValueError:
        return False


_NUMBER: Kind = ("a number", _is_number)
_TEXT: Kind = ("a text", lambda value: isinstance(value, str))
_FLAG: Kind = ("true or false", lambda value: isinstance(value, bool))
_SCALAR: Kind = ("a number or a text", lambda value: value is None or isinstance(value, str) or _is_number(value))
_MAYBE_NUMBER = _or_none(_NUMBER)
_MAYBE_TEXT = _or_none(_TEXT)
_MAYBE_FLAG = _or_none(_FLAG)


class _Object(dict[str, Any]):
    """An object with these fields; those of `required` must be there. Where `empty` allows it, null is one without."""

    def __init__(self, *parts: Mapping[str, Any], required: tuple[str, ...] = (), empty: bool = True) -> None:
        super().__init__({key: shape for part in parts for key, shape in part.items()})
        self.required = required
        self.empty = empty


class _Map:
    """An object whose fields are all alike."""

    def __init__(self, shape: Any, *, codes: bool = False) -> None:
        self.shape = shape
        self.codes = codes


class _List:
    """A list of things that are alike, `length` of them if there is one; null is one without any, as above."""

    def __init__(self, shape: Any, length: int | None = None, *, empty: bool = False) -> None:
        self.shape = shape
        self.length = length
        self.empty = empty


def _fields(names: str, kind: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


_DISTRIBUTION = _Object(_fields("mean p50 p99 p999 max min p90 p9999 p99999", _MAYBE_NUMBER))
_PIECES = _Object(_fields("count longest_ns share", _NUMBER))
_DIRECTION = _Object(_fields("ios iops bw_bytes", _NUMBER), {"latency_ns": _DISTRIBUTION})
_ALLOWED = "iops_share mean_ns p99_ns read_mean_ns read_p99_ns write_mean_ns write_p99_ns"
_MODEL = _Object(
    {"iops": _NUMBER, "allowance": _Object(_fields(_ALLOWED, _NUMBER))},
    _fields("latency_ns read_latency_ns write_latency_ns", _DISTRIBUTION),
)
_FLASH = _Object(
    _fields("write_amplification host_written_bytes moved_bytes padded_bytes erased_superblocks", _NUMBER),
    _fields("joined_bytes filled_bytes cached_bytes idle_moved_bytes levelled_superblocks", _NUMBER),
    _fields("fewest_erases most_erases mean_erases", _NUMBER),
    _fields("flash_reads buffer_reads unwritten_reads", _NUMBER),
    required=("write_amplification",),
)
_TRACE = _Object(
    _fields("path format disk", _MAYBE_TEXT),
    _fields("requests reads writes trims flushes read_bytes write_bytes trim_bytes largest_bytes", _MAYBE_NUMBER),
    _fields("end_bytes span_ns left_out namespace_bytes rounded rounded_bytes wrapped moved", _MAYBE_NUMBER),
    _fields("shortened split commands disk_count lines ignored_lines", _MAYBE_NUMBER),
    _fields("empty reordered", _Object(_fields("count first_line", _MAYBE_NUMBER))),
    {"sized_from_trace": _MAYBE_FLAG},
    {
        "disks": _List(
            _Object(
                {"name": _TEXT, "replayed": _MAYBE_FLAG},
                _fields("requests bytes end_bytes offset_bytes", _MAYBE_NUMBER),
                required=("name",),
                empty=False,
            ),
            empty=True,
        )
    },
)
_OPTIONS = _Object(
    _fields("queues queue_depth requesters rate_iops read_share think_time_ns threads queue_entries", _MAYBE_NUMBER),
    _fields("trace_path distribution arrivals completion", _MAYBE_TEXT),
    {"trace_as_fast": _MAYBE_FLAG},
    empty=False,
)
_DEVICE = _Object(
    {"profile": _MAYBE_TEXT, "seed": _MAYBE_NUMBER},
    {"engine": _Object(_fields("kind units workers sms copy fetch_limit", _SCALAR))},
    {
        "timing": _Object(
            {"model": _MAYBE_TEXT},
            _fields("read_iops write_iops read_latency_ns write_latency_ns instances unit_bytes", _MAYBE_NUMBER),
            _fields("read_bytes_per_s write_bytes_per_s link_bytes_per_s", _MAYBE_NUMBER),
        ),
        "namespaces": _List(_Object({"media": _MAYBE_TEXT, "size_bytes": _MAYBE_NUMBER}, empty=False), empty=True),
    },
    empty=False,
)
_RESULT = _Object(
    _fields("clock jobname rw verdict verdict_cause verify_first_error not_verified", _TEXT),
    _fields("iops bw_bytes ios read_ios write_ios runtime_seconds wall_seconds", _NUMBER),
    _fields("verified verify_crowded verify_errors unanswered", _NUMBER),
    _fields("model_iops path_ns backlog_share busy_share poll_gap_max_ns late_by_copy_share", _MAYBE_NUMBER),
    _fields("latency_ns target_ns processing_ns lateness_ns lateness_no_gaps_ns", _DISTRIBUTION),
    _fields("fetch_wait_ns error_bound_ns", _DISTRIBUTION),
    _fields("gaps host_gaps long_work host_long_work", _PIECES),
    _fields("read write", _DIRECTION),
    {
        "bs": _SCALAR,
        **_fields("data_moved cancelled device_failed", _FLAG),
        "model": _MODEL,
        "flash": _FLASH,
        "tolerance": _Object(_fields(f"{_ALLOWED} latency_share", _MAYBE_NUMBER)),
        "failed": _Object(_fields("ios share", _NUMBER), required=("ios", "share")),
        "unfinished": _Object(_fields("outstanding backlog oldest_ns", _MAYBE_NUMBER)),
        "errors": _Map(_NUMBER, codes=True),
        "error_names": _Map(_TEXT),
        "faults": _List(
            _Object(
                {"rule": _TEXT, "matched": _NUMBER, "injected": _NUMBER},
                required=("rule", "matched", "injected"),
                empty=False,
            )
        ),
        "latency_cdf": _List(_List(_NUMBER, 2)),
        "trace": _TRACE,
        "options": _OPTIONS,
        "device": _DEVICE,
        "provenance": _Object(_fields("version cpu", _MAYBE_TEXT), empty=False),
    },
    required=("iops", "clock", "verdict"),
    empty=False,
)


def check(data: Mapping[str, Any]) -> None:
    """Looks at everything in a result's document that anybody shows.

    Raises:
        DamageError: "FIELD is VALUE where WHAT belongs".
    """
    _look(data, _RESULT, "")


def _look(value: Any, shape: Any, field: str) -> None:
    if isinstance(shape, tuple):
        what, fits = shape
        if not fits(value):
            raise _damage(field, value, what)
    elif isinstance(shape, _List):
        _look_at_list(value, shape, field)
    elif isinstance(shape, _Map):
        for key, inner in _object(value, field).items():
            if shape.codes and not _is_code(key):
                raise _damage(field, key, "a status code")
            _look(inner, shape.shape, f"{field}.{key}")
    elif value is not None or not shape.empty:
        found = _object(value, field)
        for key in (key for key in shape if key in found):
            _look(found[key], shape[key], _below(field, key))
        for key in shape.required:
            if key not in found:
                raise DamageError(f"{_below(field, key)} is missing")


def _look_at_list(value: Any, shape: _List, field: str) -> None:
    if value is None and shape.empty:
        return
    if not isinstance(value, list | tuple):
        raise _damage(field, value, "a list")
    if shape.length is not None and len(value) != shape.length:
        raise _damage(field, value, f"a list of {shape.length}")
    for index, inner in enumerate(value):
        _look(inner, shape.shape, f"{field}.{index}")


def _below(field: str, key: str) -> str:
    return f"{field}.{key}" if field else key


def _object(value: Any, field: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _damage(field, value, "an object")
    return value


def _damage(field: str, value: Any, what: str) -> DamageError:
    shown = repr(value)
    return DamageError(f"{field} is {shown if len(shown) <= 40 else shown[:37] + '...'} where {what} belongs")
