"""The compiled module: the C++ device, driver and load generator. Times in ns, sizes in bytes."""

from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer

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
    per_request_updates: bool
    def __init__(self) -> None: ...
    def validate(self) -> None: ...

class NamespaceConfig:
    """One namespace: its size, format and media."""

    size_bytes: int
    lba_bytes: int
    media: str
    shared: bool
    def __init__(self) -> None: ...

class SubsystemConfig:
    """[subsystem]: identity. Assign a whole list to `namespaces`; changes inside the list are not seen."""

    nqn: str
    serial: str
    model: str
    firmware: str
    spare_capacity_bytes: int
    namespaces: list[NamespaceConfig]
    def __init__(self) -> None: ...
    def validate(self) -> None: ...

class ControllerConfig:
    """[controller]: limits of each controller."""

    max_queue_pairs: int
    max_queue_entries: int
    max_transfer_bytes: int
    interrupt_vectors: int
    volatile_write_cache: bool
    abort_limit: int
    async_event_limit: int
    def __init__(self) -> None: ...
    def validate(self) -> None: ...

class EngineConfig:
    """[engine]: the threads that serve the device."""

    units: int
    workers: int
    fetch_limit: int
    cores: list[int]
    copy: str
    idle_spin_ns: int
    idle_sleep_ns: int
    move_data: bool
    wheel_shift: int
    def __init__(self) -> None: ...
    def validate(self) -> None: ...

class FidelityConfig:
    """[fidelity]: when a run counts as true to its model."""

    max_iops_error: float
    max_lateness_p99_ns: int
    max_lateness_share: float
    max_gap_share: float
    gap_ns: int
    def __init__(self) -> None: ...
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
    def __init__(self) -> None: ...
    def validate(self) -> None: ...

class BlockSizeShare:
    """One entry of a block-size mix."""

    bytes: int
    weight: float
    def __init__(self) -> None: ...

class BenchOptions:
    """What one benchmark does; see include/flashmob/bench.h."""

    target: str
    host_nqn: str
    host_key: str
    controller_key: str
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
    ramp_ns: int
    runtime_ns: int
    ios: int
    verify_percent: float
    fill: bool
    trace_path: str
    trace_format: str
    trace_as_fast: bool
    clock: str
    virtual_poll_ns: int
    cores: list[int]
    command: str
    def __init__(self) -> None: ...

class BenchProgress:
    """A running benchmark's counters; rate and latency are those since the previous call of progress()."""

    phase: str
    phase_fraction: float
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
    """A host that must prove who it is, and its DHHC-1 secrets; an empty controller_key asks no proof of us."""

    host_nqn: str
    host_key: str
    controller_key: str
    def __init__(self) -> None: ...

class ServerOptions:
    """The doors of a served SSD; assign whole lists."""

    vfio_user_path: str
    tcp_address: str
    host_nqns: list[str]
    host_secrets: list[HostSecret]
    def __init__(self) -> None: ...

class HostStats:
    """One attached host: counters since it attached, rates since the previous snapshot."""

    door: str
    host: str
    controller_id: int
    state: str
    queues: int
    read_commands: int
    write_commands: int
    read_bytes: int
    written_bytes: int
    read_iops: float
    write_iops: float
    read_bytes_per_s: float
    written_bytes_per_s: float

class TimeFigures:
    """A distribution of times; zero where nothing was measured."""

    mean_ns: float
    p50_ns: int
    p99_ns: int
    p999_ns: int

class ServerStats:
    """A snapshot: the interval since the previous one, and sums since the start; see include/flashmob/server.h."""

    uptime_s: float
    interval_s: float
    hosts: list[HostStats]
    iops: float
    read_bytes_per_s: float
    written_bytes_per_s: float
    queue_depth: float
    latency: TimeFigures
    target: TimeFigures
    lateness: TimeFigures
    verdict: str
    verdict_cause: str
    completions: int
    read_commands: int
    write_commands: int
    read_bytes: int
    written_bytes: int
    hosts_seen: int
    total_latency: TimeFigures
    total_lateness: TimeFigures
    lateness_max_ns: int
    gap_count: int
    gap_longest_ns: int
    verdict_so_far: str
    verdict_so_far_cause: str

class Server:
    """One SSD that other processes attach to."""

    def __init__(self, device: DeviceConfig, options: ServerOptions) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def stats(self) -> ServerStats: ...
    def addresses(self) -> list[str]: ...

class Ssd:
    """A running emulated SSD."""

    def __init__(self, config: DeviceConfig) -> None: ...
    def close(self) -> None: ...
    def namespace_count(self) -> int: ...
    def namespace_bytes(self, nsid: int) -> int: ...
    def lba_bytes(self, nsid: int) -> int: ...
    def identify(self, cns: int, nsid: int) -> bytes: ...
    def log_page(self, lid: int, size: int, nsid: int = 0xFFFFFFFF) -> bytes: ...
    def queue(self, depth: int) -> Queue: ...

class Queue:
    """One I/O queue pair, for one thread at a time. It keeps buffers alive until their commands are done."""

    def read(self, nsid: int, lba: int, buffer: Buffer | NDArray[Any]) -> int: ...
    def write(self, nsid: int, lba: int, buffer: Buffer | NDArray[Any]) -> int: ...
    def flush(self, nsid: int) -> int: ...
    def poll(self) -> list[tuple[int, int]]: ...
    def outstanding(self) -> int: ...

def machine_info() -> dict[str, Any]:
    """The machine: cpu, kernel, cores, tsc_ghz, invariant_tsc, features, hugepages, isolated_cores."""
