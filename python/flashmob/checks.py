"""What is refused before a benchmark starts: options that would be ignored, and what cannot fit together.

Each refusal is one sentence that names what the user wrote and the way out. The C++ side checks again what it needs.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from flashmob.errors import ConfigError
from flashmob.explain import short

if TYPE_CHECKING:
    from flashmob.given import Given
    from flashmob.models import Profile
    from flashmob.options import BenchOptions

_RANDOM = ("randread", "randwrite", "randrw")
_MIXED = ("rw", "randrw")
_WRITES = ("write", "randwrite")
# Requesters of a closed loop: two rounds of all of them come before the first that is measured, and as many after it in
# the model's own runs.
MOST_IN_FLIGHT = 1 << 21
# Less than one request in a quarter of an hour is no load, and its arrivals lie beyond what a clock of ns can hold.
_LEAST_IOPS = 0.001
# What a trace says itself.
BY_TRACE = (
    "rw",
    "block_sizes",
    "read_share",
    "distribution",
    "rate_iops",
    "arrivals",
    "think_time_ns",
    "requesters",
    "ramp_ns",
)
TRACE_ONLY = ("trace_format", "trace_disk", "trace_as_fast")
# Of a file with a key: that others read or write it, or that its group writes it.
_TOO_OPEN = 0o026
Secret = Literal["NVMeTLSkey-1", "DHHC-1"]
# More than any key has: whoever names an image by mistake need not wait for it to be read.
_MOST_KEY_CHARACTERS = 4096
_SECRETS: dict[Secret, str] = {"NVMeTLSkey-1": "an NVMeTLSkey-1 key", "DHHC-1": "a DHHC-1 secret"}
TCP_ONLY = ("host_nqn", "host_key", "controller_key", "tls_key", "secure_channel", "header_digest", "data_digest")
_GPU_ENGINE_KEYS = ("engine.sms",)
_HOST_ENGINE_KEYS = ("engine.units", "engine.workers", "engine.copy", "engine.cores")
_HOST_ENGINE_ONLY = ("units", "workers", "copy_engine")
# How names of drives of this machine begin.
PCI = "pci:"
# Of what describes a device, those that flashmob serve does not take.
_NOT_SERVED = ("clock", "precondition", "placement", "move_data", "copy_engine")
_DEVICE_ONLY = (
    "size",
    "media",
    "units",
    "workers",
    "copy_engine",
    "engine",
    "sms",
    "move_data",
    "faults",
    "precondition",
    "placement",
)


def _refuse(text: str) -> NoReturn:
    raise ConfigError(text)


def checked_seconds(name: str, value: object, *, may_be_zero: bool = False, most_s: float = math.inf) -> float:
    """A time that a caller from Python gave in seconds; math.inf is one unless there is a longest.

    Raises:
        ConfigError: if it is none.
    """
    seconds = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
    if 0 < seconds <= most_s or (may_be_zero and seconds == 0):
        return seconds
    least = "seconds, 0 or more" if may_be_zero else "seconds above 0"
    most = ", or math.inf to wait forever" if most_s == math.inf else f", at most {most_s:g}"
    raise ConfigError(f"{name} = {short(value)} is not possible: use {least}{most}")


def _first(given: Given, fields: Iterable[str]) -> str | None:
    return next((field for field in fields if field in given), None)


def refuse_ignored(given: Given) -> None:
    """Refuses options of the load that would have no effect beside the others.

    Raises:
        ConfigError: naming both and the way out.
    """
    if given.get("trace_path"):
        if field := _first(given, BY_TRACE):
            _refuse(f"{given.shown(field)} is what {given.name('trace_path')} says itself; leave one of them out")
    elif field := _first(given, TRACE_ONLY):
        _refuse(f"{given.shown(field)} is for a trace; add {given.name('trace_path')}, or leave it out")
    if "ramp_ns" in given and "ios" in given:
        _refuse(
            f"{given.shown('ramp_ns')} is for a run by time, and {given.shown('ios')} makes one by count, whose ramp "
            "is counted too: two rounds of every requester; leave one of them out"
        )
    if "runtime_ns" in given and "ios" in given and not given.get("trace_path"):
        _refuse(
            f"{given.shown('runtime_ns')} ends a run by time, and {given.shown('ios')} one by count; leave one of "
            "them out"
        )
    rw = given.get("rw", "randread")
    if "read_share" in given and rw not in _MIXED:
        mixed = f"{given.would_be('rw', 'randrw')} or {given.would_be('rw', 'rw')}"
        _refuse(f"{given.shown('read_share')} is for mixed loads; add {mixed}, or leave it out")
    if "distribution" in given and rw not in _RANDOM:
        _refuse(f"{given.shown('distribution')} is for random loads, and {given.shown('rw')} is sequential; change one")
    if "rate_iops" in given:
        if field := _first(given, ("think_time_ns", "requesters")):
            _refuse(
                f"{given.shown(field)} is for a closed loop, and {given.shown('rate_iops')} makes an open one; leave "
                "one of them out"
            )
    elif "arrivals" in given:
        _refuse(f"{given.shown('arrivals')} is for an open loop; add {given.name('rate_iops')}, or leave it out")
    if given.get("clock") == "virtual":
        if "cores" in given:
            _refuse(f"{given.shown('cores')} pins threads, and virtual time has none to pin; leave it out")
        if given.get("completion", "poll") != "poll":
            _refuse(f"{given.shown('completion')} is about threads that sleep, and virtual time has none; leave it out")
    elif "virtual_poll_ns" in given:
        _refuse(f"{given.shown('virtual_poll_ns')} is for virtual time; add {given.would_be('clock', 'virtual')}")


def refuse_zeros(given: Given, options: BenchOptions) -> None:
    """Refuses zeros that would mean the opposite of what they say (no limit, or no rate), and rates as good as zero."""
    for field, least, otherwise in (
        ("rate_iops", "a rate above 0", "for a closed loop"),
        ("ios", "at least 1", "to run by time"),
        ("requesters", "at least 1", "for one per slot"),
        ("runtime_ns", "a time above 0", "for the default"),
    ):
        if field in given and not getattr(options, field):
            _refuse(f"{given.shown(field)} is not possible: use {least}, or leave it out {otherwise}")
    if 0 < options.rate_iops < _LEAST_IOPS:
        _refuse(f"{given.shown('rate_iops')} is not possible: use at least {_LEAST_IOPS}")


def check_target(given: Given, target: str, overrides: Iterable[str]) -> None:
    """Refuses what describes a device of our own where another process's is named, and what its kind does not know."""
    first = _first(given, _DEVICE_ONLY)
    if first is None and given.get("clock", "real") != "real":
        first = "clock"  # The virtual clock drives a device of our own.
    what = given.shown(first) if first else next((f"{given.name('set')} {key}" for key in overrides), "")
    if what:
        if target.startswith(PCI):
            _refuse(
                f"{what} describes a device of flashmob's own, but {target} is a drive of this machine; leave it out"
            )
        elsewhere = "leave it out" if first in _NOT_SERVED else "leave it out here and give it to flashmob serve"
        _refuse(f"{what} describes a device of flashmob's own, but {target} is another process's; {elsewhere}")
    _check_allowed(given, target)
    tcp = _first(given, TCP_ONLY)
    if tcp and not target.startswith("nvme-tcp:"):
        _refuse(f"{_without_secret(given, tcp)} is for NVMe/TCP, and {target} is not; leave it out")
    if "controller_key" in given and "host_key" not in given:
        _refuse(f"{given.name('controller_key')} needs {given.name('host_key')}: a host proves itself first; add it")
    if given.get("secure_channel"):
        ours = given.name("secure_channel")
        if "tls_key" in given:
            _refuse(f"{ours} makes a key of its own, so it cannot go with {given.name('tls_key')}; leave one out")
        if "host_key" not in given:
            _refuse(f"{ours} needs {given.name('host_key')}: its key is made as the host proves itself; add it")


def _check_allowed(given: Given, target: str) -> None:
    """Refuses leave to write what nobody asks leave for."""
    if "allow_writes" in given and not target.startswith(PCI):
        what = target or "a profile's SSD"
        _refuse(
            f"{given.name('allow_writes')} is for drives of this machine (pci:ADDRESS); {what} is none; leave it out"
        )


def check_overrides(given: Given, overrides: Iterable[str]) -> None:
    """Refuses changes of the profile that would have no effect beside the options."""
    if given.get("clock") == "virtual" and "engine.cores" in overrides:
        _refuse(
            f"{given.name('set')} engine.cores pins threads, and virtual time has one that runs anywhere; leave it out"
        )
    if given.get("clock") == "virtual" and "timing.path_ns" in overrides:
        _refuse(
            f"{given.name('set')} timing.path_ns is what the way to the device costs in real time, and virtual time "
            "has none; leave it out"
        )


def check_no_target(given: Given) -> None:
    """Refuses what only a door of another process, or a drive of this machine, knows."""
    _check_allowed(given, "")
    if field := _first(given, ("target", *TCP_ONLY)):
        _refuse(
            f"{_without_secret(given, field)} is for a target behind NVMe/TCP, not for a profile; name "
            "nvme-tcp:ADDRESS:PORT/NQN instead, or leave it out"
        )


def _without_secret(given: Given, field: str) -> str:
    return given.name(field) if field.endswith("_key") else given.shown(field)


def check_engine(given: Given, kind: str, overrides: Iterable[str]) -> None:
    """Refuses what the engine that serves the device does not look at."""
    kind = given.get("engine", kind)
    of_other = _GPU_ENGINE_KEYS if kind == "host" else _HOST_ENGINE_KEYS
    if key := next((key for key in overrides if key in of_other), None):
        other = "GPU" if kind == "host" else "host's"
        engine = "gpu" if kind == "host" else "host"
        _refuse(f"{given.name('set')} {key} is for the {other} engine; leave it out, or use engine {engine}")
    if kind == "gpu":
        if field := _first(given, _HOST_ENGINE_ONLY):
            _refuse(f"{given.shown(field)} is for the host's engine; leave it out, or use engine host")
        if given.get("move_data") is False:
            _refuse(f"{given.name('move_data')} is not possible on the GPU engine, which always moves data")
    elif "sms" in given:
        gpu = given.would_be("engine", "gpu")
        _refuse(f"{given.shown('sms')} is for the GPU engine; add {gpu}, or leave it out")


def check_no_data(given: Given, options: BenchOptions) -> None:
    """Refuses what only data can show, where none are moved."""
    without = given.name("move_data") if "move_data" in given else "engine.move_data = false"
    field = "verify_percent" if "verify_percent" in given and options.verify_percent else "copy_engine"
    if field in given:
        _refuse(f"{given.shown(field)} needs data, but {without} moves none; leave one of them out")
    if "fill" in given:
        _refuse(f"{given.shown('fill')} is about data, but {without} moves none; leave one of them out")


def check_reads(given: Given, options: BenchOptions) -> None:
    """Refuses to check reads where there are none."""
    if "verify_percent" not in given or not options.verify_percent or options.trace_path:
        return
    if options.rw in _WRITES or (options.rw in _MIXED and options.read_share == 0):
        _refuse(
            f"{given.shown('verify_percent')} checks reads, and this load has none; leave it out, or use "
            f"{given.would_be('rw', 'randrw')}"
        )


def _check_in_flight(given: Given, options: BenchOptions) -> None:
    if options.rate_iops or options.trace_path or options.in_flight() <= MOST_IN_FLIGHT:
        return
    _refuse(
        f"{given.name('queues')} {options.queues} and {given.name('queue_depth')} {options.queue_depth} are "
        f"{options.in_flight()} requests at once; use at most {MOST_IN_FLIGHT}"
    )


def check_fit(given: Given, profile: Profile, options: BenchOptions, *, is_run: bool = True) -> None:
    """Refuses loads that the device, its medium or this machine cannot take, before a store is filled for them.

    Raises:
        ConfigError: naming the option and the fix.
    """
    if options.queue_entries and options.queue_entries <= options.queue_depth:
        _refuse(
            f"{given.shown('queue_entries')} cannot hold {given.name('queue_depth')} {options.queue_depth}, because "
            f"one slot of a ring stays empty; use at least {options.queue_depth + 1}"
        )
    if options.threads > options.queues:
        queues = f"{given.name('queues')} {options.queues}"
        _refuse(f"{given.shown('threads')} is more than {queues}; give each thread a queue of its own")
    if len(options.cores) > options.threads:
        _refuse(
            f"{given.shown('cores')} names {len(options.cores)} cores for {options.threads} driver "
            f"thread{'s' * (options.threads > 1)}; name as many as {given.name('threads')} has"
        )
    check_cores(given.shown("cores"), options.cores)
    _check_in_flight(given, options)
    if options.trace_path:
        check_readable(given.shown("trace_path"), options.trace_path, "a trace file")
    if options.target:
        return
    if options.clock == "real":
        check_cores(f"engine.cores = {','.join(map(str, profile.engine.cores))}", profile.engine.cores)
    _check_limits(given, profile, options)
    _check_medium(given, profile, options)
    _check_set(given, profile, options, is_run=is_run)
    _check_precondition(given, profile, options)
    _check_placement(given, options)


def _check_limits(given: Given, profile: Profile, options: BenchOptions) -> None:
    controller = profile.controller
    if options.queues > controller.max_queue_pairs:
        _refuse(
            f"{given.name('queues')} {options.queues} is more than the {controller.max_queue_pairs} of the device; "
            "use fewer, or raise controller.max_queue_pairs"
        )
    entries = options.queue_entries or options.queue_depth + 1
    if entries > controller.max_queue_entries:
        _refuse(
            f"{given.name('queue_entries' if options.queue_entries else 'queue_depth')} asks for rings of {entries} "
            f"slots, and the device has at most {controller.max_queue_entries}; use less, or raise "
            "controller.max_queue_entries"
        )
    largest = max(bytes_ for bytes_, _ in options.block_sizes)
    if largest > controller.max_transfer_bytes and not options.trace_path:
        _refuse(
            f"{given.shown('block_sizes')} is beyond the device's largest transfer, {controller.max_transfer_bytes} "
            "bytes; use smaller blocks, or raise controller.max_transfer_bytes"
        )
    if not profile.subsystem.namespaces:
        return
    store = profile.subsystem.namespaces[0]
    if largest > store.size_bytes and not options.trace_path and store.media in ("memory", "generated"):
        where = given.shown("size") if "size" in given else f"the namespace's size, {store.size_bytes} bytes,"
        _refuse(f"{where} has no room for {given.shown('block_sizes')}; use a larger size, or smaller blocks")
    lba_bytes = store.lba_bytes
    if not options.trace_path and any(bytes_ % lba_bytes for bytes_, _ in options.block_sizes):
        _refuse(
            f"{given.name('block_sizes')} {_mix(options)} is not possible: use multiples of the namespace's LBA size, "
            f"{lba_bytes} bytes"
        )


def _mix(options: BenchOptions) -> str:
    return ",".join(str(bytes_) for bytes_, _ in options.block_sizes)


def _writes(options: BenchOptions) -> bool:
    return options.rw in _WRITES or (options.rw in _MIXED and options.read_share < 1)


def _check_set(given: Given, profile: Profile, options: BenchOptions, *, is_run: bool) -> None:
    """Refuses loads that the namespace's command set does not have; bounds alone may be those of writes to zones."""
    if not profile.subsystem.namespaces:
        return
    name = profile.subsystem.namespaces[0].command_set
    if name == "kv":
        _refuse(
            "command_set = kv has no blocks to read or write: the load generator is for namespaces that have; name "
            "another SSD"
        )
    if is_run and name == "zns" and _writes(options) and not options.trace_path:
        _refuse(
            f"{given.shown('rw')} is not possible: the namespace's command set is zns, whose blocks cannot be written "
            f"in any order; use {given.would_be('rw', 'read')} or {given.would_be('rw', 'randread')}"
        )


def _check_placement(given: Given, options: BenchOptions) -> None:
    if options.placement == "apart" and not options.trace_path and not _writes(options):
        _refuse(
            f"{given.shown('placement')} says where writes go, and this load has none; leave it out, or use "
            f"{given.would_be('rw', 'randwrite')}"
        )


def _check_precondition(given: Given, profile: Profile, options: BenchOptions) -> None:
    """Refuses the state of a drive that the device's model does not have, or that its medium would contradict."""
    if options.precondition == "none":
        return
    shown, model = given.shown("precondition"), profile.timing.model
    if model != "nand":
        _refuse(f'{shown} is for timing.model = "nand": model {model} keeps nothing of what was written; leave it out')
    media = profile.subsystem.namespaces[0].media if profile.subsystem.namespaces else "memory"
    if media != "memory":
        _refuse(f"{shown} is for media = memory: another medium is not empty when the drive begins; leave it out")


def _check_medium(given: Given, profile: Profile, options: BenchOptions) -> None:
    if not profile.subsystem.namespaces:
        return
    media = profile.subsystem.namespaces[0].media
    shown = given.shown("media") if "media" in given else f"media = {media}"
    writes = _writes(options)
    if media == "generated" and writes and not options.trace_path:
        _refuse(
            f"{shown} cannot be written, its content is computed, and {given.shown('rw')} writes; use media memory, "
            "or a load of reads"
        )
    kind, _, path = media.partition(":")
    if kind == "cow":
        if Path(path).is_fifo():
            _refuse(f"{shown} is not possible: it is a pipe; name a file")
        check_readable(shown, path, "a file")
    elif kind in ("file", "direct") and Path(path).is_dir():
        _refuse(f"{shown} is not possible: {path} is a folder; name a file in it")
    elif kind in ("file", "direct") and not Path(path).parent.is_dir():
        _refuse(f"{shown} is not possible: the folder {Path(path).parent} does not exist; make it first")
    empty = media == "memory" or (kind in ("file", "direct") and not Path(path).exists())
    # What was typed is text, of which "0" is true; the number tells whether anything is to be checked.
    asked = "verify_percent" in given and options.verify_percent > 0
    if empty and not options.fill and asked and not writes and not options.trace_path:
        _refuse(
            f"{given.shown('verify_percent')} has nothing to check: with {given.name('fill')} the store is empty; "
            "leave one of them out"
        )


def check_readable(shown: str, path: str, what: str) -> None:
    """Fails at once where a file that is needed cannot be read; `shown` is the option as it was written."""
    try:
        if Path(path).is_dir():
            _refuse(f"{shown} is not possible: it is a folder; name {what}")
        with Path(path).open("rb"):
            pass
    except OSError as error:
        _refuse(f"{shown} cannot be read: {error.strerror}; name {what} that exists and that you may read")


def check_cores(shown: str, cores: Sequence[int]) -> None:
    """Fails where this machine, or this process's container, has not all of these cores."""
    if not cores:
        return
    usable = usable_cores()
    missing = [core for core in cores if core not in usable]
    if missing:
        _refuse(
            f"{shown} is not possible: core {missing[0]} is not among those that may be used here, "
            f"{_ranges(sorted(usable))}"
        )


def usable_cores() -> set[int]:
    """The cores that a thread of this process can be pinned to: those of the machine and of its container."""
    now = os.sched_getaffinity(0)
    try:
        # The kernel takes away what the control group does not allow; the mask of `taskset` may be widened again.
        os.sched_setaffinity(0, range(1024))
        return os.sched_getaffinity(0)
    except OSError:
        return now
    finally:
        os.sched_setaffinity(0, now)


def _ranges(cores: list[int]) -> str:
    """Text such as 0-3,6 of ascending numbers."""
    spans: list[list[int]] = []
    for core in cores:
        if spans and core == spans[-1][1] + 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def read_secret(option: str, path: str, kind: Secret) -> str:
    """A secret from a file, so that it shows neither in the list of processes nor in the result.

    Raises:
        ConfigError: naming the option; never what is in the file, which should begin with `kind`.
    """
    give = f"give a file that holds {_SECRETS[kind]}"
    try:
        with Path(path).expanduser().open(encoding="ascii") as file:
            text = file.read(_MOST_KEY_CHARACTERS).strip()
        # First, because whoever names the wrong file must not be told to change who may read that one.
        if not text.startswith(f"{kind}:"):
            raise ConfigError(f"{option} {path}: holds no key that begins with {kind}; {give}")
        check_secrecy(path, f"{option} {path}")
    except ConfigError:
        raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{option} {path} cannot be read ({why}); {give}") from None
    return text


def check_secrecy(path: str, what: str) -> None:
    """A file that holds a key is its owner's and its group's to read, and its owner's alone to write.

    Raises:
        ConfigError: beginning with `what`; an OSError if there is no such file.
    """
    found = Path(path).expanduser().stat()
    # A pipe of the shell's (/dev/fd/63) is nobody else's.
    if stat.S_ISREG(found.st_mode) and found.st_mode & _TOO_OPEN:
        raise ConfigError(f"{what}: holds a key, and other users may read or change it; chmod 600 {path}")
