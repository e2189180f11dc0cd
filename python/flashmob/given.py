"""What a user asked of a benchmark: one name for each thing, and how it was written, for messages.

The command line, Python and fio call the same thing by different names. Here all of them become the field's name in
BenchOptions (or a key of the device), and what was typed is kept, so that an error can name it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NoReturn

from flashmob.errors import ConfigError
from flashmob.explain import did_you_mean, short
from flashmob.units import parse_duration_with_unit_ns, parse_percent

# The command line's and Python's short names for fields of BenchOptions.
SHORT_NAMES = {
    "bs": "block_sizes",
    "qd": "queue_depth",
    "runtime": "runtime_ns",
    "ramp": "ramp_ns",
    "rate": "rate_iops",
    "think": "think_time_ns",
    "verify": "verify_percent",
    "trace": "trace_path",
    "as_fast": "trace_as_fast",
}
# fio's names for the same. One of its jobs has a queue of its own, as one queue pair is.
FIO_NAMES = {
    "iodepth": "queue_depth",
    "numjobs": "queues",
    "blocksize": "block_sizes",
    "readwrite": "rw",
    "rwmixread": "read_share",
    "rwmixwrite": "read_share",
    "rate_iops": "rate_iops",
    "ramp_time": "ramp_ns",
    "thinktime": "think_time_ns",
    "number_ios": "ios",
    "random_distribution": "distribution",
    "randseed": "seed",
    "cpus_allowed": "cores",
    "read_iolog": "trace_path",
}
# What fio has and flashmob does not: why, and what to do instead.
FIO_ONLY = {
    "ioengine": "the requests go to the SSD's queues, not through the operating system; leave it out",
    "filename": "bench makes an SSD of its own; media file:PATH or cow:PATH puts a file into it",
    "direct": "there is no page cache between the load and the SSD; leave it out",
    "buffered": "there is no page cache between the load and the SSD; leave it out",
    "time_based": "a run ends by its runtime unless ios is given; leave it out",
    "group_reporting": "the report always covers all queues; leave it out",
    "norandommap": "random blocks are drawn independently, as that option asks; leave it out",
    "randrepeat": "equal seeds give equal runs; use seed",
    "name": "a run is named after its profile; leave it out",
    "output": "json takes the file that the result goes to",
    "output_format": "the command bench alone writes results to files; leave it out",
    "nrfiles": "the load goes to one namespace; leave it out",
    "thread": "threads takes how many driver threads there are",
    "offset": "the load covers the whole namespace; choose its size",
    "io_size": "ios takes how many requests are measured",
    "fsync": "the load has no Flush commands of its own; leave it out",
    "loops": "a run ends by runtime or ios; use one of them",
}
# Times of these names are written with their unit; the fields' own names end in it.
_WITH_UNIT = ("runtime", "ramp", "think", "ramp_time", "thinktime")
_PERCENT = {"rwmixread": False, "rwmixwrite": True}
# Options of the device rather than of the load.
DEVICE_KEYS = ("size", "media", "units", "workers", "copy_engine", "engine", "sms", "move_data", "seed", "faults")
# On the command line these are written otherwise than their names say.
_FLAGS = {"move_data": "--no-data", "fill": "--no-fill"}
_COMMAND_LINE = {"faults": "--fault", **_FLAGS}


def field_of(name: str) -> str:
    """The field of BenchOptions, or the key of the device, that an option of any spelling stands for."""
    return SHORT_NAMES.get(name) or FIO_NAMES.get(name) or name


def refuse_fio(name: str, written: str) -> NoReturn:
    """Says why an option of fio's has no meaning here, and what to do instead."""
    raise ConfigError(f"{written} is fio's: {FIO_ONLY[name]}")


class Given:
    """Options under their fields' names, each with how it was written. Options that are None were not given."""

    def __init__(
        self,
        options: Mapping[str, Any],
        known: tuple[str, ...],
        *,
        command_line: bool = False,
        elsewhere: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        """Brings names together.

        Args:
            options: name -> value, in any of the spellings.
            known: the fields' names.
            command_line: whether the user wrote `--qd 4` rather than `qd=4`.
            elsewhere: options that stand in a file or under a name of another command's -> the name there, and that
                with the value: ("iodepth", "iodepth=4").

        Raises:
            ConfigError: for a name that is not known, a thing given twice, or a time without its unit.
        """
        self.values: dict[str, Any] = {}
        self.command_line = command_line
        self._written: dict[str, tuple[str, Any]] = {}
        self._elsewhere = elsewhere or {}
        self._shown: dict[str, str] = {}
        for name, value in options.items():
            if value is not None:
                self._add(name, value, known)

    def _add(self, name: str, value: Any, known: tuple[str, ...]) -> None:
        written = self._spelled(name)
        if name in FIO_ONLY:
            refuse_fio(name, written)
        field = field_of(name)
        if field not in known:
            names = [*SHORT_NAMES, *known]
            raise ConfigError(f"{written} is not a known option{did_you_mean(name, names)}")
        if field in self.values:
            raise ConfigError(f"{self._written[field][0]} and {written} mean the same; leave one of them out")
        self._written[field] = (written, value)
        if name in self._elsewhere:
            self._shown[field] = self._elsewhere[name][1]
        try:
            if name in _WITH_UNIT:
                value = parse_duration_with_unit_ns(value)
            elif name in _PERCENT:
                share = parse_percent(value) / 100
                value = 1 - share if _PERCENT[name] else share
        except ValueError as error:
            raise ConfigError(f"{self.shown(field)} is not possible: {error}") from None
        self.values[field] = value

    def _spelled(self, name: str) -> str:
        if name in self._elsewhere:
            return self._elsewhere[name][0]
        if not self.command_line:
            return name
        return _COMMAND_LINE.get(name) or f"--{name if name in FIO_NAMES | FIO_ONLY else name.replace('_', '-')}"

    def __contains__(self, field: str) -> bool:
        return field in self.values

    def get(self, field: str, default: Any = None) -> Any:
        """The value of a field, or the default where it was not given."""
        return self.values.get(field, default)

    def name(self, field: str) -> str:
        """How the user wrote an option, or would write it: "--qd" or "qd"."""
        if field in self._written:
            return self._written[field][0]
        short_name = next((name for name, full in SHORT_NAMES.items() if full == field), field)
        return self._spelled(short_name)

    def shown(self, field: str) -> str:
        """An option with its value as it was written: "--qd 0" or "qd=0"."""
        if field in self._shown:
            return self._shown[field]
        if field not in self._written:
            return self.name(field)
        return self.would_be(field, self._written[field][1])

    def would_be(self, field: str, value: Any) -> str:
        """An option as it would be written with another value."""
        name = self.name(field)
        if not self.command_line or (field in self._shown and not name.startswith("--")):
            return f"{name}={value if self.command_line else short(value)}"
        if value is True or field in _FLAGS:
            return self.name(field)
        values = value if isinstance(value, list | tuple) else [value]
        return " ".join(f"{self.name(field)} {shlex.quote(str(one)[:100])}" for one in values)
