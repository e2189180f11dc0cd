"""The part of flashmob._core about threads of a GPU that do their own I/O. There is no such module of its own."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmob._core import DeviceConfig

_U64s = NDArray[np.uint64]

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
