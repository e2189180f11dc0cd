"""The models of a profile's tables: they mirror include/flashmob/config.h key by key, defaults and bounds included
(but for timing.unit_bytes).

Sizes may be text ("8G", "1.92TB"), durations too ("50us"), and rates ("2.47M").
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from flashmob import bounds
from flashmob.structures import html_table
from flashmob.units import (
    format_size,
    parse_cores,
    parse_count,
    parse_duration_ns,
    parse_number,
    parse_rate,
    parse_size,
)

_HOUR_NS = 3_600_000_000_000
_MIN_BYTES_PER_S, _MAX_BYTES_PER_S = 1_000_000, 10_000_000_000_000
_MAX_NAMESPACE_BYTES = 64 << 40
_MAX_NAMESPACES = 256
_MAX_HANDLES = 128
_MAX_STREAMS = 255


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError("use a power of two")
    return value


def _bytes_per_s(value: int) -> int:
    if value != 0 and not _MIN_BYTES_PER_S <= value <= _MAX_BYTES_PER_S:
        raise ValueError("use 0 for no limit, or 1MB to 10TB (a second)")
    return value


def _media(value: str) -> str:
    kind, colon, path = value.partition(":")
    named = kind in ("file", "direct", "cow") and colon and path
    if "\0" in value or not (value in ("memory", "generated") or named):
        raise ValueError("use memory, generated, file:PATH, direct:PATH or cow:PATH")
    if not path.startswith("~"):
        return value
    try:
        return f"{kind}:{Path(path).expanduser()}"
    except RuntimeError:
        raise ValueError("name an existing user after the ~, or write the whole path") from None


def _share(value: object) -> float:
    if isinstance(value, bool):
        raise ValueError("use a share such as 0.28 or 28%")
    if isinstance(value, str) and value.strip().endswith("%"):
        value = parse_number(value.strip().removesuffix("%"))
        value = None if value is None else value / 100
    number = parse_number(value)
    if number is None:
        raise ValueError("use a share such as 0.28 or 28%")
    return float(number)


def _by_share(times_ns: tuple[int, ...]) -> tuple[int, ...]:
    if len(times_ns) not in (1, 2, 6):
        raise ValueError(
            f"a list of {len(times_ns)} times is not possible: give one, two (for none and all), or six (for none, "
            "1/16, 1/8, 1/4, 1/2 and all)"
        )
    return times_ns


def _times(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Count = Annotated[int, BeforeValidator(parse_count)]
Size = Annotated[int, BeforeValidator(parse_size)]
Nanoseconds = Annotated[int, BeforeValidator(parse_duration_ns)]
Rate = Annotated[float, BeforeValidator(parse_rate), Field(gt=0, le=1e15)]
Latency = Annotated[Nanoseconds, Field(ge=0, le=_HOUR_NS)]
OperationTime = Annotated[Nanoseconds, Field(ge=1, le=1_000_000_000)]
SomeTime = Annotated[Nanoseconds, Field(ge=0, le=1_000_000_000)]
ZoneTimes = Annotated[tuple[Latency, ...], BeforeValidator(_times), AfterValidator(_by_share)]
BytesPerSecond = Annotated[Size, Field(ge=0), AfterValidator(_bytes_per_s)]
Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]
Ascii = Annotated[str, StringConstraints(pattern=r"^[ -~]+$")]
Cores = Annotated[list[Annotated[int, Field(ge=0, le=1023)]], BeforeValidator(parse_cores), Field(max_length=1024)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=False)


class Nand(_Section):
    """[timing.nand]: what a NAND drive is made of, of model "nand" alone. Times in ns, sizes in bytes."""

    channels: Annotated[Count, Field(ge=1, le=64)] = 8
    dies_per_channel: Annotated[Count, Field(ge=1, le=64)] = 4
    planes: Annotated[Count, Field(ge=1, le=16)] = 4
    word_lines: Annotated[Count, Field(ge=1, le=8192)] = 704
    bits_per_cell: Annotated[Count, Field(ge=1, le=4)] = 3
    page_bytes: Annotated[Size, Field(ge=512, le=65536), AfterValidator(_power_of_two)] = 16384
    over_provisioning: Annotated[float, BeforeValidator(_share), Field(ge=0.01, le=4)] = 0.07
    read_ns: Annotated[tuple[OperationTime, ...], BeforeValidator(_times)] = (45_000, 60_000, 75_000)
    program_ns: OperationTime = 1_200_000
    erase_ns: OperationTime = 3_500_000
    suspend_ns: SomeTime = 0
    resume_ns: SomeTime = 0
    channel_bytes_per_s: Annotated[Size, Field(ge=_MIN_BYTES_PER_S, le=_MAX_BYTES_PER_S)] = 1_200_000_000
    program_share: Annotated[float, BeforeValidator(_share), Field(ge=0.01, le=1)] = 0.5
    cores: Annotated[Count, Field(ge=1, le=64)] = 4
    firmware_ns: SomeTime = 4_000
    correction_ns: SomeTime = 0
    buffer_bytes: Annotated[Size, Field(ge=2048, le=1 << 34)] = 16 << 20
    buffer_write_ns: SomeTime = 5_000
    protected_buffer: bool = True
    victim: Literal["greedy", "fifo", "d_choices", "random"] = "greedy"
    choices: Annotated[Count, Field(ge=1, le=64)] = 8
    free_superblocks: Annotated[Count, Field(ge=2, le=64)] = 2
    slc_fixed: Share = 0.0
    slc_dynamic: Share = 0.0
    slc_bypass: bool = True
    slc_read_ns: SomeTime = 0
    slc_program_ns: SomeTime = 0
    idle_ns: SomeTime = 0
    idle_free_superblocks: Annotated[Count, Field(ge=0, le=65536)] = 0
    wear_spread: Annotated[Count, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(self.read_ns) != self.bits_per_cell:
            raise ValueError(
                f"read_ns has {len(self.read_ns)} times; give one for each page of a cell, bits_per_cell = "
                f"{self.bits_per_cell}"
            )
        row_bytes = self.page_bytes * self.planes * self.bits_per_cell
        if self.buffer_bytes < 4 * row_bytes:
            raise ValueError(
                f"buffer_bytes = {self.buffer_bytes} holds fewer than 4 rows of a die, page_bytes * planes * "
                f"bits_per_cell = {row_bytes} each; make it larger"
            )
        return self


# Keys of [timing] that one model alone reads; the others are every model's.
KEYS_OF_MODEL: dict[str, frozenset[str]] = {
    "none": frozenset(),
    "simple": frozenset(
        (
            *("read_iops", "write_iops", "read_latency_ns", "write_latency_ns", "instances"),
            *("read_bytes_per_s", "write_bytes_per_s", "per_request_updates"),
        )
    ),
    "nand": frozenset({"nand"}),
}


def keys_of_others(model: object) -> dict[str, str]:
    """The keys of [timing] that a model does not read -> the model that does; none for what is no model."""
    if not isinstance(model, str) or model not in KEYS_OF_MODEL:
        return {}
    return {key: owner for owner, keys in KEYS_OF_MODEL.items() if owner != model for key in keys}


class Timing(_Section):
    """[timing]: when a request is done. Rates in requests of one unit per second, latencies in ns, sizes in bytes."""

    model: Literal["none", "simple", "nand"] = "simple"
    read_iops: Rate = 1e6
    write_iops: Rate = 1e6
    read_latency_ns: Latency = 50_000
    write_latency_ns: Latency = 50_000
    instances: Annotated[Count, Field(ge=1, le=1024), AfterValidator(_power_of_two)] = 1
    # What vendors count their IOPS in; the C++ structure alone starts with a sector (docs/decisions/0009).
    unit_bytes: Annotated[Size, Field(ge=512, le=1 << 20), AfterValidator(_power_of_two)] = 4096
    read_bytes_per_s: BytesPerSecond = 0
    write_bytes_per_s: BytesPerSecond = 0
    link_bytes_per_s: BytesPerSecond = 0
    path_ns: Annotated[Nanoseconds, Field(ge=0, le=5_000)] = 0
    per_request_updates: bool = False
    nand: Nand = Nand()

    def service_ns(self, direction: Literal["read", "write"]) -> float:
        """How long one instance is busy with one unit, ns: instances / rate."""
        return self.instances * 1e9 / (self.read_iops if direction == "read" else self.write_iops)

    def limit_bytes_per_s(self, direction: Literal["read", "write"]) -> int:
        """What a direction carries at most: the smaller of its own limit and the link's; 0 if there is neither."""
        own = self.read_bytes_per_s if direction == "read" else self.write_bytes_per_s
        return min((limit for limit in (own, self.link_bytes_per_s) if limit), default=0)

    def rate_at(self, direction: Literal["read", "write"], bytes_: int) -> float:
        """Requests per second of so many bytes, aligned, that the model lets through; infinite without a model.

        Of model nand it is the bound of what is narrowest in a new drive, before any garbage is collected and while an
        SLC cache takes what is written; data that are read lie one after another.
        """
        return bounds.rate(self, direction, bytes_)

    def idle_latency_ns(self, direction: Literal["read", "write"]) -> int:
        """Of a request of one unit on an idle device; 0 without a model."""
        return bounds.idle_latency_ns(self, direction)

    @model_validator(mode="after")
    def _keys_are_read(self) -> Self:
        others = keys_of_others(self.model)
        for key in sorted(self.model_fields_set & others.keys()):
            raise ValueError(
                f"timing.{key} belongs to model {others[key]}, and this is model {self.model}; remove it or change "
                "timing.model"
            )
        return self

    @model_validator(mode="after")
    def _page_holds_units(self) -> Self:
        if self.model == "nand" and self.unit_bytes > self.nand.page_bytes:
            raise ValueError(
                f"unit_bytes = {self.unit_bytes} is not possible with model nand: a unit of its map is at most "
                f"nand.page_bytes = {self.nand.page_bytes}"
            )
        return self

    @model_validator(mode="after")
    def _read_latency_holds_service(self) -> Self:
        # A write's may be less: a buffer answers it before it is served. A read has nothing to answer with.
        service_ns = self.service_ns("read")
        if self.model == "simple" and service_ns > self.read_latency_ns:
            raise ValueError(
                f"a unit alone takes {service_ns:.6g} ns with read_iops and instances as they are, more "
                f"than read_latency_ns = {self.read_latency_ns}; raise the latency or the rate, or use fewer instances"
            )
        return self


class Zoned(_Section):
    """[subsystem.namespaces.zoned]: zones of a namespace of command set "zns". Sizes in bytes, times in ns.

    A list of times has one value, or two (for none of the zone and all of it), or six (for none, 1/16, 1/8, 1/4, 1/2
    and all of it).
    """

    zone_bytes: Annotated[Size, Field(ge=4096, le=_MAX_NAMESPACE_BYTES), AfterValidator(_power_of_two)] = 64 << 20
    zone_capacity_bytes: Annotated[Size, Field(ge=0, le=_MAX_NAMESPACE_BYTES, multiple_of=4096)] = 0
    max_open_zones: Annotated[Count, Field(ge=0, le=1 << 20)] = 0
    max_active_zones: Annotated[Count, Field(ge=0, le=1 << 20)] = 0
    reads_cross_zones: bool = True
    descriptor_extension_bytes: Annotated[Size, Field(ge=0, le=16320, multiple_of=64)] = 0
    read_only_zones: tuple[int, ...] = ()
    offline_zones: tuple[int, ...] = ()
    append_ns: Latency = 0
    open_ns: Latency = 0
    close_ns: Latency = 0
    finish_empty_ns: Latency = 0
    finish_ns: ZoneTimes = (0,)
    reset_ns: ZoneTimes = (0,)
    reset_finished_ns: ZoneTimes = (0,)

    @model_validator(mode="after")
    def _zone_holds_its_capacity(self) -> Self:
        if self.zone_capacity_bytes > self.zone_bytes:
            raise ValueError(
                f"zone_capacity_bytes = {self.zone_capacity_bytes} is more than zone_bytes = {self.zone_bytes}; "
                "lower it"
            )
        if self.max_active_zones and not 1 <= self.max_open_zones <= self.max_active_zones:
            raise ValueError(
                f"max_open_zones = {self.max_open_zones} is not possible with max_active_zones = "
                f"{self.max_active_zones}: zones that are open are active; use 1 to {self.max_active_zones}"
            )
        return self


class KeyValue(_Section):
    """[subsystem.namespaces.kv]: limits of a namespace of command set "kv". Sizes in bytes, times in ns."""

    max_key_bytes: Annotated[Size, Field(ge=1, le=16)] = 16
    max_value_bytes: Annotated[Size, Field(ge=0, le=16 << 20)] = 1 << 20
    max_keys: Annotated[Count, Field(ge=0, le=(1 << 31) - 1)] = 0
    value_granularity_bytes: Annotated[Size, Field(ge=64, le=64 << 10), AfterValidator(_power_of_two)] = 512
    lookup_ns: Latency = 0
    list_key_ns: Latency = 0


class Namespace(_Section):
    """[[subsystem.namespaces]]: one namespace. Sizes in bytes; size 0 with a medium of a file is its size."""

    size_bytes: Annotated[Size, Field(ge=0, le=_MAX_NAMESPACE_BYTES)] = 1 << 30
    lba_bytes: Annotated[Literal[512, 4096], BeforeValidator(parse_size)] = 512
    media: Annotated[str, AfterValidator(_media)] = "memory"
    command_set: Literal["nvm", "zns", "kv"] = "nvm"
    zoned: Zoned = Zoned()
    kv: KeyValue = KeyValue()
    placement_handles: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=_MAX_HANDLES)], ...],
        BeforeValidator(_times),
        Field(max_length=_MAX_HANDLES),
    ] = ()
    shared: bool = True
    cache_bytes: Annotated[Size, Field(ge=0, le=1 << 40)] = 64 << 20

    @model_validator(mode="after")
    def _size_fits(self) -> Self:
        if self.size_bytes % self.lba_bytes:
            raise ValueError(
                f"size_bytes = {self.size_bytes} is not a multiple of lba_bytes = {self.lba_bytes}; round it"
            )
        if self.command_set == "zns" and self.media != "memory":
            raise ValueError(
                f"media = {self.media} is not possible with command_set = zns, whose write pointers do not outlive a "
                "run; use memory"
            )
        if self.command_set == "kv" and self.media != "memory":
            raise ValueError(
                f"media = {self.media} is not possible with command_set = kv, whose keys do not outlive a run; use "
                "memory"
            )
        if self.command_set == "zns" and self.size_bytes % self.zoned.zone_bytes:
            raise ValueError(
                f"size_bytes = {self.size_bytes} is not a multiple of zoned.zone_bytes = {self.zoned.zone_bytes}; "
                "round it"
            )
        if self.size_bytes == 0 and self.media in ("memory", "generated"):
            raise ValueError("size_bytes = 0 takes the size of a file:, direct: or cow: medium only; give a size")
        return self


class Placement(_Section):
    """[subsystem.placement]: Flexible Data Placement. Sizes in bytes."""

    handles: Annotated[Count, Field(ge=0, le=_MAX_HANDLES)] = 0
    reclaim_groups: Annotated[Count, Field(ge=1, le=_MAX_STREAMS // 2)] = 1
    persistently_isolated: bool = False
    reclaim_unit_bytes: Annotated[Size, Field(ge=0, le=1 << 40, multiple_of=4096)] = 0
    enabled: bool = True

    @model_validator(mode="after")
    def _streams_are_few(self) -> Self:
        if self.handles == 1:
            raise ValueError(f"handles = 1 keeps nothing apart; use 2 to {_MAX_HANDLES}, or 0 for no placement")
        if self.handles * self.reclaim_groups > _MAX_STREAMS:
            raise ValueError(
                f"handles = {self.handles} in reclaim_groups = {self.reclaim_groups} are more than {_MAX_STREAMS} "
                "streams; use fewer of either"
            )
        return self


class Subsystem(_Section):
    """[subsystem]: the device's identity and its namespaces."""

    nqn: Annotated[Ascii, Field(max_length=223, pattern=r"^nqn\.")] = (
        "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001"
    )
    serial: Annotated[Ascii, Field(max_length=20)] = "FLASHMOB00000001"
    model: Annotated[Ascii, Field(max_length=40)] = "flashmob software-defined SSD"
    firmware: Annotated[Ascii, Field(max_length=8)] = "0.1.0"
    spare_capacity_bytes: Annotated[Size, Field(ge=0, le=_MAX_NAMESPACE_BYTES * _MAX_NAMESPACES)] = 0
    placement: Placement = Placement()
    namespaces: Annotated[tuple[Namespace, ...], Field(max_length=_MAX_NAMESPACES)] = (Namespace(),)

    @model_validator(mode="after")
    def _something_to_store_on(self) -> Self:
        if not self.namespaces and self.spare_capacity_bytes == 0:
            raise ValueError("namespaces is empty; add a [[subsystem.namespaces]] table or set spare_capacity_bytes")
        return self


class Controller(_Section):
    """[controller]: limits of each controller. max_transfer_bytes (MDTS) in bytes, the others counts."""

    max_queue_pairs: Annotated[Count, Field(ge=1, le=4096)] = 4096
    max_queue_entries: Annotated[Count, Field(ge=2, le=65536)] = 65536
    max_append_bytes: Annotated[Size, Field(ge=0, le=16 << 20)] = 0
    max_transfer_bytes: Annotated[Size, Field(ge=4096, le=16 << 20), AfterValidator(_power_of_two)] = 1 << 20
    interrupt_vectors: Annotated[Count, Field(ge=1, le=4097)] = 4097
    volatile_write_cache: bool = True
    abort_limit: Annotated[Count, Field(ge=1, le=256)] = 8
    async_event_limit: Annotated[Count, Field(ge=1, le=256)] = 8


class Engine(_Section):
    """[engine]: who serves the device, the host's threads or a kernel on the GPU. Times in ns."""

    kind: Literal["host", "gpu"] = "host"
    sms: Annotated[Count, Field(ge=1, le=1024)] = 1
    gpu_media: Literal["host", "device"] = "host"
    units: Annotated[Count, Field(ge=1, le=64)] = 1
    workers: Annotated[Count, Field(ge=0, le=16)] = 0
    fetch_limit: Annotated[Count, Field(ge=1, le=1024)] = 256
    cores: Cores = Field(default_factory=list)
    copy_: Annotated[Literal["auto", "memcpy", "avx2", "avx512", "nontemporal", "dsa"], Field(alias="copy")] = "auto"
    idle_spin_ns: Latency = 2_000_000
    idle_sleep_ns: Annotated[Nanoseconds, Field(ge=1, le=10_000_000_000)] = 1_000_000
    move_data: bool = True
    wheel_shift: Annotated[Count, Field(ge=0, le=20)] = 6


class Fidelity(_Section):
    """[fidelity]: when a run counts as true to its model. Times in ns, shares from 0 to 1."""

    max_iops_error: Share = 0.02
    max_error_ns: Latency = 1_000
    max_error_share: Share = 0.02
    gap_ns: Annotated[Nanoseconds, Field(ge=1, le=_HOUR_NS)] = 5_000


class Profile(_Section):
    """A whole device, as one profile file describes it.

    Attributes:
        name: the file's name without its ending, for reports.
        path: the file it came from.
        seed: names generated content and steers virtual time.
        faults: what the device is to do wrong, one rule each (docs/guide/faults.md).
        sources: dotted key -> where the number comes from.
    """

    name: str = "custom"
    path: Path | None = None
    description: str = ""
    seed: Annotated[Count, Field(ge=0, le=(1 << 64) - 1)] = 1
    timing: Timing = Timing()
    controller: Controller = Controller()
    engine: Engine = Engine()
    subsystem: Subsystem = Subsystem()
    fidelity: Fidelity = Fidelity()
    faults: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    sources: dict[str, str] = Field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """The device's settings as plain data, keys as in the file."""
        settings = self.model_dump(mode="json", by_alias=True, exclude={"name", "path", "sources", "description"})
        for key in keys_of_others(self.timing.model):
            if key not in self.timing.model_fields_set:
                del settings["timing"][key]
        for namespace, shown in zip(self.subsystem.namespaces, settings["subsystem"]["namespaces"], strict=True):
            for table, command_set in (("zoned", "zns"), ("kv", "kv")):
                if namespace.command_set != command_set:
                    del shown[table]
            if not self.subsystem.placement.handles:
                del shown["placement_handles"]
        if not self.subsystem.placement.handles:
            del settings["subsystem"]["placement"]
        return settings

    def given_keys(self) -> set[str]:
        """The dotted keys that the profile's file or an override sets; the others have their defaults."""
        return set(_given_keys(self, ""))

    def __repr__(self) -> str:
        sizes = ", ".join(format_size(one.size_bytes) for one in self.subsystem.namespaces)
        return f"<Profile {self.name} {sizes}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return html_table(f"Profile {self.name}", ("key", "value", "source"), list(self._rows("", self.settings())))

    def _rows(self, prefix: str, settings: dict[str, Any]) -> Iterator[tuple[str, object, str]]:
        for key, value in settings.items():
            dotted = prefix + key
            if isinstance(value, dict):
                yield from self._rows(f"{dotted}.", value)
            elif dotted == "subsystem.namespaces":
                for index, one in enumerate(value):
                    yield from self._rows(f"{dotted}.{index}.", one)
            else:
                yield dotted, value, self.sources.get(dotted, "")


# Keys that come from the file's place, not from its text.
OUTSIDE_KEYS = ("name", "path")


@functools.cache
def known_keys() -> tuple[str, ...]:
    """Every dotted key that --set accepts; namespaces carry the index 0."""
    return tuple(_keys_of(Profile, ""))


def _keys_of(model: type[BaseModel], prefix: str) -> list[str]:
    keys: list[str] = []
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        nested = model_in(field.annotation)
        if nested is None:
            if not (model is Profile and name in (*OUTSIDE_KEYS, "sources", "description")):
                keys.append(key)
        else:
            keys.extend(_keys_of(nested, f"{key}.0." if nested is Namespace else f"{key}."))
    return keys


def _given_keys(part: BaseModel, prefix: str) -> list[str]:
    keys: list[str] = []
    for name in part.model_fields_set:
        value = getattr(part, name)
        key = prefix + (type(part).model_fields[name].alias or name)
        items = value if isinstance(value, tuple) and value and isinstance(value[0], BaseModel) else ()
        if isinstance(value, BaseModel):
            keys.extend(_given_keys(value, f"{key}."))
        elif items:
            for index, item in enumerate(items):
                keys.extend(_given_keys(item, f"{key}.{index}."))
        else:
            keys.append(key)
    return keys


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, directly or as a tuple's item."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
