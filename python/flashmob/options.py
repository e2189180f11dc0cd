"""What one benchmark does: the checked twin of BenchOptions in include/flashmob/bench.h."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from flashmob import bounds
from flashmob.checks import MOST_IN_FLIGHT, PCI, refuse_ignored, refuse_zeros
from flashmob.device import core_module
from flashmob.errors import ConfigError
from flashmob.explain import explain
from flashmob.given import DEVICE_KEYS, Given
from flashmob.models import Cores, Count, Nanoseconds, Profile
from flashmob.profiles import namespace_overrides
from flashmob.units import (
    parse_address,
    parse_block_sizes,
    parse_count,
    parse_number,
    parse_percent,
    parse_rate,
    parse_share,
)

if TYPE_CHECKING:
    from flashmob import _core

_MAX_U64 = (1 << 64) - 1
# The store that a run fills when nothing else is asked: beyond most caches, and filled in about a second.
DEFAULT_STORE_BYTES = 1 << 30
_DEFAULT_VIRTUAL_IOS = 5_000_000
# Where a number of I/Os ends the run, time must not.
_NO_LIMIT_NS = 3_600_000_000_000

# How the names of doors of other processes begin, and those of drives of this machine.
TARGET_KINDS = ("vfio-user:", "nvme-tcp:", PCI)
_PCI_ADDRESS = re.compile(r"([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)


def _block_sizes(value: object) -> tuple[tuple[int, float], ...]:
    if isinstance(value, list | tuple):
        pairs = [":".join(map(str, item)) if isinstance(item, list | tuple) else str(item) for item in value]
        value = ",".join(pairs)
    sizes = parse_block_sizes(value if isinstance(value, str) else str(parse_count(value)))
    for bytes_, _ in sizes:
        if not 512 <= bytes_ <= 16 << 20 or bytes_ % 512:
            raise ValueError("use multiples of 512 bytes up to 16M")
    return tuple(sizes)


def _distribution(value: str) -> str:
    word, *numbers = value.split(":")
    parsed = [parse_number(number) for number in numbers]
    if any(number is None for number in parsed):
        word = ""
    values = [float(number) for number in parsed if number is not None]
    good = (
        (word == "uniform" and not values)
        or (word == "zipf" and len(values) == 1 and 0 < values[0] < 10)
        or (word == "hotcold" and len(values) == 2 and all(0 < share < 1 for share in values))
    )
    if not good:
        raise ValueError("use uniform, zipf:THETA (0.99) or hotcold:SHARE_OF_IO:SHARE_OF_SPACE (0.9:0.1)")
    return value


def is_target(name: object) -> bool:
    """Whether a device's name is that of a door of another process, or of a drive, rather than of a profile."""
    return isinstance(name, str) and name.startswith(TARGET_KINDS)


def _target(value: str) -> str:
    kind, _, rest = value.partition(":")
    if kind == "nvme-tcp":
        address, slash, nqn = rest.partition("/")
        if not slash or not nqn.startswith("nqn."):
            raise ValueError("write nvme-tcp:ADDRESS:PORT/NQN, such as nvme-tcp:127.0.0.1:4420/nqn.2014-08...")
        return f"nvme-tcp:{parse_address(address)}/{nqn}"
    if kind == "vfio-user" and rest:
        return f"vfio-user:{Path(rest).expanduser()}"
    if kind == "pci":
        if not _PCI_ADDRESS.fullmatch(rest):
            raise ValueError("write pci:ADDRESS as flashmob pci list has it, such as pci:0000:04:00.0")
        return PCI + (rest if rest.count(":") == 2 else f"0000:{rest}").lower()
    if value:
        raise ValueError("write vfio-user:PATH, nvme-tcp:ADDRESS:PORT/NQN or pci:ADDRESS")
    return value


def _time(value: int) -> int:
    if value > 24 * _NO_LIMIT_NS:
        raise ValueError("use at most 24h")
    return value


def _offered_rate(value: float) -> float:
    if value < 0:  # Zero stands for a closed loop.
        raise ValueError("use a rate above 0")
    return value


def _number_of(value: int) -> int:
    if value < 0:  # Zero stands for none given; given, it is refused, too.
        raise ValueError("use at least 1")
    return value


Time = Annotated[Nanoseconds, Field(ge=0), AfterValidator(_time)]


class BenchOptions(BaseModel):
    """What is asked, how much at once, for how long, and what is checked.

    Sizes in bytes, times in ns (virtual ns under the virtual clock), rates in requests per second. Text with units
    is accepted: queue_depth=128, block_sizes="512:70,4k:30", runtime_ns="5s", rate_iops="2.47M".
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: Annotated[str, AfterValidator(_target)] = ""
    host_nqn: str = ""
    host_key: str = ""
    controller_key: str = ""
    tls_key: str = ""
    secure_channel: bool = False
    header_digest: bool = False
    data_digest: bool = False
    rw: Literal["read", "write", "randread", "randwrite", "rw", "randrw"] = "randread"
    read_share: Annotated[float, BeforeValidator(parse_share)] = 1.0
    block_sizes: Annotated[tuple[tuple[int, float], ...], BeforeValidator(_block_sizes)] = ((512, 1.0),)
    distribution: Annotated[str, AfterValidator(_distribution)] = "uniform"
    queues: Annotated[Count, Field(ge=1, le=4096)] = 4
    queue_depth: Annotated[Count, Field(ge=1, le=65535)] = 128
    requesters: Annotated[Count, AfterValidator(_number_of), Field(le=MOST_IN_FLIGHT)] = 0
    queue_entries: Annotated[Count, Field(ge=0, le=65536)] = 0
    rate_iops: Annotated[float, BeforeValidator(parse_rate), AfterValidator(_offered_rate), Field(le=1e12)] = 0.0
    arrivals: Literal["fixed", "poisson"] = "poisson"
    think_time_ns: Time = 0
    threads: Annotated[Count, Field(ge=1, le=1024)] = 1
    completion: Literal["poll", "interrupt", "hybrid"] = "poll"
    ramp_ns: Time = 1_000_000_000
    runtime_ns: Time = 5_000_000_000
    ios: Annotated[Count, AfterValidator(_number_of), Field(le=_MAX_U64)] = 0
    verify_percent: Annotated[float, BeforeValidator(parse_percent)] = 1.0
    fill: bool = True
    allow_writes: bool = False
    precondition: Literal["none", "steady"] = "none"
    placement: Literal["none", "apart"] = "none"
    trace_path: str = ""
    trace_format: Literal["auto", "fio", "msr", "alibaba", "tencent"] = "auto"
    trace_disk: str = ""
    trace_as_fast: bool = False
    trace_sizes_namespace: bool = False
    clock: Literal["real", "virtual"] = "real"
    virtual_poll_ns: Annotated[Nanoseconds, Field(ge=1, le=1_000_000_000)] = 100
    cores: Cores = Field(default_factory=list)
    command: str = ""

    def in_flight(self) -> int:
        """Requests that are outstanding at once under a closed loop."""
        return self.requesters or self.queues * self.queue_depth

    def to_core(self) -> _core.BenchOptions:
        """The compiled module's structure."""
        core = core_module()
        options: _core.BenchOptions = core.BenchOptions()
        for name in type(self).model_fields:
            if name != "block_sizes":
                setattr(options, name, getattr(self, name))
        shares = []
        for bytes_, weight in self.block_sizes:
            share = core.BlockSizeShare()
            share.bytes = bytes_
            share.weight = weight
            shares.append(share)
        options.block_sizes = shares
        return options


# Every name of an option that bench() takes, the device's among them.
KNOWN = (*BenchOptions.model_fields, *DEVICE_KEYS)


def make_options(profile: Profile, given: Given, target: str = "") -> BenchOptions:
    """Options from what the user gave, completed to fit the profile; the device's own are left out.

    Mixed reads and writes are half and half. Under the virtual clock, where every simulated second costs wall time,
    the run ends after 5 million I/Os, and the ramp is two rounds of all requesters at the model's rate. Requesters
    without a queue depth all get a slot. A trace is replayed to its end. `target`: the door of another process that
    they are for.

    Raises:
        ConfigError: naming the option and the fix.
    """
    values = {field: value for field, value in given.values.items() if field not in DEVICE_KEYS}
    if target:
        values["target"] = target
    if values.get("trace_path") == "":
        raise ConfigError(f"{given.shown('trace_path')} is not possible: name a file, or leave it out")
    asked = _validated(values, given)
    refuse_ignored(given)
    refuse_zeros(given, asked)
    if values.get("rw") in ("rw", "randrw"):
        values.setdefault("read_share", 0.5)
    if not target and not values.get("trace_path") and profile.subsystem.namespaces:
        # The smallest requests that the namespace takes.
        values.setdefault("block_sizes", ((profile.subsystem.namespaces[0].lba_bytes, 1.0),))
    if values.get("trace_path"):
        values.setdefault("runtime_ns", 0)  # A trace ends where it ends.
    virtual = values.get("clock") == "virtual"
    if virtual and "runtime_ns" not in values and not values.get("trace_path"):
        values.setdefault("ios", _DEFAULT_VIRTUAL_IOS)
    if values.get("ios"):
        values.setdefault("runtime_ns", _NO_LIMIT_NS)
    options = _validated(values, given)
    if options.requesters and "queue_depth" not in values:
        # The ring is one slot larger than the depth.
        most = (options.queue_entries or profile.controller.max_queue_entries) - 1
        values["queue_depth"] = max(1, min(-(-options.requesters // options.queues), most))
        options = _validated(values, given)
    if virtual and "ramp_ns" not in values:
        options = _validated(values | {"ramp_ns": virtual_ramp_ns(profile, options)}, given)
    return options


def _validated(values: Mapping[str, Any], given: Given) -> BenchOptions:
    named = {"target": str(values.get("target"))} | {field: given.shown(field) for field in given.values}
    try:
        return BenchOptions.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain(error, BenchOptions, "bench options", named=named)) from None


def virtual_ramp_ns(profile: Profile, options: BenchOptions) -> int:
    """Virtual time after which a closed loop has settled, ns: two rounds of all requesters, and two latencies."""
    timing = profile.timing
    if timing.model == "none":
        return 100_000
    largest = max(bytes_ for bytes_, _ in options.block_sizes)
    reads_only = options.rw in ("read", "randread")
    if timing.model == "nand":
        rates = [*bounds.rates(timing, "read", largest).values()]
        rates += [] if reads_only else bounds.rates(timing, "write", largest).values()  # those behind an SLC cache
        return int(2 * options.in_flight() * 1e9 / min(rates) + 2 * timing.idle_latency_ns("read"))
    slower = timing.read_iops if reads_only else min(timing.read_iops, timing.write_iops)
    units = -(-largest // timing.unit_bytes)
    round_ns = options.in_flight() * units * 1e9 / slower
    return int(2 * round_ns + 2 * max(timing.read_latency_ns, timing.write_latency_ns))


def store_overrides(profile: Profile, *, size: str | int | None, media: str | None) -> dict[str, str | int]:
    """Overrides for namespace 1 that --size and --media mean, and the store that a benchmark takes without them.

    A memory namespace as large as a real drive would have to be filled before it can be verified. Without --size a
    benchmark therefore uses at most 1 GiB of it, and at most half of what is free.
    """
    overrides = namespace_overrides(size, media)
    namespace = profile.subsystem.namespaces[0] if profile.subsystem.namespaces else None
    is_filled = namespace is not None and namespace.command_set == "nvm"
    if size is None and namespace is not None and is_filled and (media or namespace.media) == "memory":
        whole = max(1 << 20, min(DEFAULT_STORE_BYTES, free_memory_bytes() // 2) >> 20 << 20)
        if namespace.size_bytes > whole:
            overrides["subsystem.namespaces.0.size_bytes"] = whole
    return overrides


def free_memory_bytes() -> int:
    """Memory that can be had without swapping, bytes, the container's limits included."""
    free: int = core_module().free_memory_bytes()
    return free
