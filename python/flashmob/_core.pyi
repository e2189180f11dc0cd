"""The compiled module. Times in ns, sizes in bytes; options take no arguments unless their text says who makes them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

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

class GpuOptions:
    """How SSDs are attached to a GPU; see include/flashmob/gpu.h."""

    backend: str
    clock: str
    service: str
    queues: int
    queue_depth: int
    queue_placement: str
    max_transfer_bytes: int
    service_blocks: int
    schedule: str
    seed: int
    def validate(self) -> None: ...

class GpuBackend:
    """What runs kernels, and why."""

    name: str
    device: str
    clock: str
    reason: str

class GpuSsd:
    """One attached SSD; lists by namespace."""

    profile: str
    queues: int
    queue_depth: int
    queue_placement: str
    max_transfer_bytes: int
    lba_bytes: list[int]
    namespace_bytes: list[int]

class GpuStats:
    """Counters over all attached SSDs."""

    now_ns: int
    submitted: int
    completed: int
    failed: int
    in_flight: int
    doorbells: int
    unexpected: int
    service_passes: int
    allocated_bytes: int
    service: str
    service_running: bool

class GpuMemory:
    """Memory that kernels, SSDs and host code reach; freed with this object."""

    address: int
    size: int
    placement: str
    def array(self, shape: list[int], kind: str, bytes: int, device_type: int) -> Any: ...  # noqa: A002

class GpuArray:
    """Somebody's array, by DLPack or the buffer protocol, kept alive. Raises TypeError for what is none."""

    address: int
    nbytes: int
    device_type: int
    shape: list[int]
    dtype: str
    def __init__(self, array: object, writable: bool) -> None: ...

class Gpu:
    """Attached SSDs and what runs kernels on them, for one thread at a time. Addresses are those of memory."""

    def backend(self) -> GpuBackend: ...
    def ssds(self) -> int: ...
    def ssd_info(self, ssd: int) -> GpuSsd: ...
    def allocate(self, bytes: int, placement: str = "device") -> GpuMemory: ...  # noqa: A002
    def allocate_near(self, bytes: int, for_ssds: bool) -> GpuMemory: ...  # noqa: A002
    def copy(self, to: int, from_: int, bytes: int) -> None: ...  # noqa: A002
    def start_service(self) -> None: ...
    def stop_service(self) -> None: ...
    def service_running(self) -> bool: ...
    def drain(self, timeout_ns: int) -> bool: ...
    def write(self, ssd: int, namespace_: int, lba: int, address: int, bytes: int) -> None: ...  # noqa: A002
    def read(self, ssd: int, namespace_: int, lba: int, address: int, bytes: int) -> None: ...  # noqa: A002
    def load_file(self, ssd: int, namespace_: int, lba: int, path: str) -> int: ...
    def now_ns(self) -> int: ...
    def pass_time(self, duration_ns: int) -> None: ...
    def stats(self) -> GpuStats: ...

def gpu_attach(ssds: list[DeviceConfig], options: GpuOptions) -> Gpu: ...
def gpu_attach_remote(path: str, options: GpuOptions) -> Gpu: ...
def gpu_choose_backend(backend: str, clock: str) -> GpuBackend: ...

class GpuServer:
    def stop(self) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def engine(self) -> str: ...
    def address(self) -> str: ...

def gpu_serve(device: DeviceConfig, path: str, backend: str) -> GpuServer: ...

class GpuAccess:
    """How a kernel reaches its data; see gpu/workloads/workloads.h, as for all that follows."""

    access: str
    cache_bytes: int
    line_bytes: int
    policy: str
    threads: int

class GpuMeanOptions:
    """The mean of an array."""

    access: GpuAccess
    count: int
    seed: int

class GpuPagerankOptions:
    """The rank of a graph's vertices."""

    access: GpuAccess
    iterations: int
    damping: float

class GpuCtcOptions:
    """Computation against communication."""

    threads: int
    commands: int
    bytes: int
    ratios: list[float]
    seed: int

class GpuRandomIoOptions:
    """Reads or writes at random places."""

    write: bool
    bytes: int
    threads: int
    in_flight: int
    commands: int
    span_blocks: int
    seed: int

class GpuDlrmOptions:
    """Recommendation inference; made by gpu_dlrm_options()."""

    access: GpuAccess
    batch: int
    batches: int
    asynchronous: bool
    most_rows: int
    clicks: str
    seed: int
    embedding_dim: int

class GpuElementOptions:
    """Which elements gather and scatter move."""

    access: GpuAccess
    ssd: int
    element_bytes: int

class CacheFigures:
    """What the software cache did."""

    hits: int
    misses: int
    evictions: int
    write_backs: int
    waits: int

class GpuOutcome:
    """What every workload answers."""

    verified: bool
    mismatches: int
    max_error: float
    io_errors: int
    duration_ns: int
    commands: int
    cache: CacheFigures
    backend: str

class GpuMeanResult(GpuOutcome):
    """A mean."""

    mean: float

class GpuBfsResult(GpuOutcome):
    """A breadth-first search."""

    source: int
    depth: int
    reached: int
    levels: NDArray[np.uint32]

class GpuSpmvResult(GpuOutcome):
    """A sparse matrix times a vector."""

    y: NDArray[np.float64]

class GpuPagerankResult(GpuOutcome):
    """Ranks."""

    ranks: NDArray[np.float64]

class GpuCtcPoint:
    """One ratio of computation to communication."""

    ratio: float
    sync_ns: int
    async_ns: int
    speedup: float
    ideal: float

class GpuCtcResult(GpuOutcome):
    """A sweep of ratios."""

    communication_ns: int
    points: list[GpuCtcPoint]
    peak_speedup: float
    worst_deviation: float

class GpuRandomIoResult(GpuOutcome):
    """Rates of random reads or writes."""

    iops: float
    bytes_per_s: float

class GpuDlrmResult(GpuOutcome):
    """Scores."""

    products: str
    samples: int
    scores: NDArray[np.float32]

class GpuGraph:
    """A graph in compressed sparse rows."""

    vertices: int
    edges: int
    offsets: _U64s
    targets: _U64s
    weights: NDArray[np.float32]
    def __init__(self, offsets: _U64s, targets: _U64s, weights: NDArray[np.float32]) -> None: ...
    def busiest_vertex(self) -> int: ...

class GpuPointOptions:
    """One point of the GPU engine's evaluation; see gpu/evaluation/evaluation.h."""

    threads: int
    queues: int
    entries: int
    bytes: int
    seed: int
    iops: float
    latency_ns: int
    media: str
    media_bytes: int
    units: int
    movers: int
    fetch_batch: int
    per_request_updates: bool
    statistics: bool
    service_warps: int
    ramp_ns: int
    measure_ns: int

class GpuPointReport:
    """What a point has measured: two JSON documents."""

    result: str
    engine: str

class GpuEvaluation:
    """Runs points; made by gpu_open_evaluation()."""

    def describe(self) -> str: ...
    def multiprocessors(self) -> int: ...
    def run(self, options: GpuPointOptions, command: str) -> GpuPointReport: ...
    def media_limit(self, media: str, media_bytes: int, stripe_bytes: int) -> float: ...

def gpu_open_evaluation(backend: str) -> GpuEvaluation: ...
def gpu_make_graph(kind: str, scale: int, degree: int, seed: int) -> GpuGraph: ...
def gpu_dlrm_options(config: int) -> GpuDlrmOptions: ...
def gpu_run_mean(gpu: Gpu, options: GpuMeanOptions) -> GpuMeanResult: ...
def gpu_run_bfs(gpu: Gpu, graph: GpuGraph, source: int, options: GpuAccess) -> GpuBfsResult: ...
def gpu_run_spmv(gpu: Gpu, graph: GpuGraph, x: NDArray[np.float32], options: GpuAccess) -> GpuSpmvResult: ...
def gpu_run_pagerank(gpu: Gpu, graph: GpuGraph, options: GpuPagerankOptions) -> GpuPagerankResult: ...
def gpu_run_ctc(gpu: Gpu, options: GpuCtcOptions) -> GpuCtcResult: ...
def gpu_run_random_io(gpu: Gpu, options: GpuRandomIoOptions) -> GpuRandomIoResult: ...
def gpu_run_dlrm(gpu: Gpu, options: GpuDlrmOptions) -> GpuDlrmResult: ...
def gpu_gather(gpu: Gpu, options: GpuElementOptions, indices: _U64s, address: int) -> GpuOutcome: ...
def gpu_scatter(gpu: Gpu, options: GpuElementOptions, indices: _U64s, address: int) -> GpuOutcome: ...

class GpuBlockMove:
    """Blocks that have begun to move; its end waits."""

    def done(self) -> bool: ...
    def wait(self) -> GpuOutcome: ...

def gpu_move_blocks(
    gpu: Gpu, write: bool, ssd: int, namespace_: int, lbas: _U64s, blocks: int, address: int, stream: int | None
) -> GpuBlockMove: ...
