"""The compiled module. Times in ns, sizes in bytes; options take no arguments unless their text says who makes them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmob._core_gpu import *  # noqa: F403
from flashmob._core_host import *  # noqa: F403
from flashmob._core_host import FaultCount

_U64s = NDArray[np.uint64]
__version__: str

class ConfigError(ValueError):
    """A configuration mistake; the text names the key and the fix."""

class TimingConfig:
    """[timing]: when a request is done."""

    model: str
    read_iops: float
    write_iops: float
    read_latency_ns: int
    write_latency_ns: int
    instances: int
    unit_bytes: int
    path_ns: int
    per_request_updates: bool
    nand: dict[str, Any]
    def validate(self) -> None: ...

class NamespaceConfig:
    size_bytes: int
    lba_bytes: int
    media: str
    command_set: str
    zoned: dict[str, Any]
    kv: dict[str, Any]
    placement_handles: list[int]
    shared: bool
    cache_bytes: int

class SubsystemConfig:
    """[subsystem]: identity. Assign a whole list to `namespaces`; changes inside the list are not seen."""

    nqn: str
    serial: str
    model: str
    firmware: str
    spare_capacity_bytes: int
    placement: dict[str, Any]
    namespaces: list[NamespaceConfig]
    def validate(self) -> None: ...

class ControllerConfig:
    max_queue_pairs: int
    max_queue_entries: int
    max_transfer_bytes: int
    max_append_bytes: int
    interrupt_vectors: int
    volatile_write_cache: bool
    abort_limit: int
    async_event_limit: int
    def validate(self) -> None: ...

class EngineConfig:
    """[engine]: who serves the device, the host's threads or a kernel on the GPU."""

    kind: str
    sms: int
    gpu_media: str
    units: int
    workers: int
    fetch_limit: int
    cores: list[int]
    copy: str
    idle_spin_ns: int
    idle_sleep_ns: int
    move_data: bool
    wheel_shift: int
    def validate(self) -> None: ...

class FidelityConfig:
    """[fidelity]: when a run counts as true to its model."""

    max_iops_error: float
    max_error_ns: int
    max_error_share: float
    gap_ns: int
    def validate(self) -> None: ...

class DeviceConfig:
    """Everything about a device. The parts are live references."""

    profile: str
    seed: int
    subsystem: SubsystemConfig
    controller: ControllerConfig
    timing: TimingConfig
    engine: EngineConfig
    fidelity: FidelityConfig
    faults: list[str]
    def validate(self) -> None: ...

def on_gpu_engine(config: DeviceConfig, sms: int) -> DeviceConfig: ...

class BlockSizeShare:  # one entry of a block-size mix
    bytes: int
    weight: float

class BenchOptions:
    """What one benchmark does; see include/flashmob/bench.h."""

    target: str
    host_nqn: str
    host_key: str
    controller_key: str
    tls_key: str
    secure_channel: bool
    header_digest: bool
    data_digest: bool
    rw: str
    read_share: float
    block_sizes: list[BlockSizeShare]
    distribution: str
    queues: int
    queue_depth: int
    requesters: int
    queue_entries: int
    rate_iops: float
    arrivals: str
    think_time_ns: int
    threads: int
    completion: str
    ramp_ns: int
    runtime_ns: int
    ios: int
    verify_percent: float
    fill: bool
    allow_writes: bool
    precondition: str
    placement: str
    trace_path: str
    trace_format: str
    trace_disk: str
    trace_as_fast: bool
    trace_sizes_namespace: bool
    clock: str
    virtual_poll_ns: int
    cores: list[int]
    command: str

class BenchProgress:
    """A running benchmark's counters; rate and latency are those since the previous call of progress()."""

    phase: str
    phase_fraction: float
    fill_bytes: int
    fill_total_bytes: int
    ios: int
    iops: float
    mean_latency_ns: float
    mean_lateness_ns: float
    verify_errors: int

class Bench:
    """One benchmark run. run() blocks without the GIL; progress() and cancel() may be called from other threads."""

    def __init__(self, device: DeviceConfig, options: BenchOptions) -> None: ...
    def run(self) -> str: ...
    def progress(self) -> BenchProgress: ...
    def cancel(self) -> None: ...

class HostSecret:
    """A host and its keys: DHHC-1 secrets (an empty controller_key asks no proof of us), a key of TLS; empty: none."""

    host_nqn: str
    host_key: str
    controller_key: str
    tls_key: str

class ServerOptions:
    """The doors of a served SSD; assign whole lists."""

    lends: bool
    vfio_user_path: str
    vfio_user_mode: str
    tcp_address: str
    host_nqns: list[str]
    host_secrets: list[HostSecret]
    vfio_user_allow: str
    tcp_allow: str
    host_rules: list[tuple[str, str, list[int]]]  # NQN, allow ("": the door's), namespaces (none: all)
    tls: str
    tls_key: str

class IoRates:
    """What was asked of an SSD, a second, since the previous snapshot."""

    iops: float
    read_iops: float
    write_iops: float
    read_bytes_per_s: float
    written_bytes_per_s: float

class HostStats(IoRates):  # one attached host: counters since it attached, rates since the previous snapshot
    door: str
    host: str
    controller_id: int
    state: str
    queues: int
    read_commands: int
    write_commands: int
    read_bytes: int
    written_bytes: int

class LeaseOptions:
    """A part of an SSD for one consumer; see include/flashmob/server.h."""

    name: str
    vfio_user_path: str
    nqn: str
    serial: str
    nsid: int
    first_byte: int
    size_bytes: int
    queue_pairs: int
    is_read_only: bool
    max_commands_per_s: int
    max_bytes_per_s: int
    uid: int

class LeaseStats:  # counters since the lease was opened
    name: str
    uid: int
    nsid: int
    first_byte: int
    size_bytes: int
    queue_pairs: int
    is_read_only: bool
    is_attached: bool
    attached_ever: int
    refused: int
    read_commands: int
    write_commands: int
    read_bytes: int
    written_bytes: int

class LeftHosts(IoRates):  # those that left since the previous snapshot, all together
    count: int

class TimeFigures:
    """A distribution of times; zero where nothing was measured."""

    mean_ns: float
    p50_ns: int
    p99_ns: int
    p999_ns: int

class ServerStats(IoRates):
    """A snapshot: the interval since the previous one, and sums since the start; see include/flashmob/server.h."""

    uptime_s: float
    interval_s: float
    hosts: list[HostStats]
    leases: list[LeaseStats]
    left: LeftHosts
    queue_depth: float
    latency: TimeFigures
    target: TimeFigures
    lateness: TimeFigures
    error_bound: TimeFigures
    door_delay: TimeFigures
    backlog_share: float
    busy_share: float
    door_busy_share: float
    verdict: str
    verdict_cause: str
    tolerance_share: float
    completions: int
    read_commands: int
    write_commands: int
    read_bytes: int
    written_bytes: int
    hosts_seen: int
    total_latency: TimeFigures
    total_lateness: TimeFigures
    total_error_bound: TimeFigures
    total_door_delay: TimeFigures
    lateness_max_ns: int
    gap_count: int
    gap_longest_ns: int
    faults: list[FaultCount]
    verdict_so_far: str
    verdict_so_far_cause: str
    tolerance_share_so_far: float

class Server:
    """One SSD that other processes attach to."""

    def __init__(self, device: DeviceConfig, options: ServerOptions) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def stats(self) -> ServerStats: ...
    def set_faults(self, rules: list[str]) -> None: ...
    def open_lease(self, options: LeaseOptions) -> None: ...
    def close_lease(self, name: str) -> None: ...
    def leases(self) -> list[LeaseStats]: ...
    def namespace_bytes(self, nsid: int) -> int: ...
    def addresses(self) -> list[str]: ...

class Ssd:  # a running emulated SSD; waits raise TimeoutError
    def __init__(self, config: DeviceConfig) -> None: ...
    def close(self) -> None: ...
    def reset(self) -> None: ...
    def only_lost_left(self) -> bool: ...
    def set_timeout(self, timeout_ns: int) -> None: ...
    def fatal(self) -> bool: ...
    def namespace_count(self) -> int: ...
    def namespace_bytes(self, nsid: int) -> int: ...
    def lba_bytes(self, nsid: int) -> int: ...
    def identify(self, cns: int, nsid: int, csi: int = 0) -> bytes: ...
    def log_page(self, lid: int, size: int, nsid: int = 0xFFFFFFFF) -> bytes: ...
    def set_faults(self, rules: list[str]) -> None: ...
    def faults(self) -> list[FaultCount]: ...
    def key_value(self, kind: int, nsid: int, key: bytes, value: bytes, room: int, options: int) -> tuple[Any, ...]: ...
    def queue(self, depth: int) -> Queue: ...

class HeldBuffer:  # somebody's contiguous memory on the host, by the buffer protocol or DLPack, pinned while this lives
    nbytes: int
    def __init__(self, array: object, writable: bool) -> None: ...

class Queue:
    """One I/O queue pair, for one thread at a time. It keeps buffers alive until their commands are done."""

    def read(self, nsid: int, lba: int, buffer: HeldBuffer, offset: int, bytes: int) -> int: ...  # noqa: A002
    def write(self, nsid: int, lba: int, buffer: HeldBuffer, offset: int, bytes: int) -> int: ...  # noqa: A002
    def flush(self, nsid: int) -> int: ...
    def poll(self) -> list[tuple[int, int]]: ...
    def abandon(self) -> None: ...
