"""What the kernels answer, as frozen dataclasses named as in gpu/workloads/workloads.h. Times in ns, sizes in bytes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Backend:
    """What runs kernels: fibres or threads on the CPU, or cuda; and why it was taken."""

    name: str
    device: str
    clock: str
    reason: str

    @property
    def on_gpu(self) -> bool:
        """Whether kernels run on a GPU: a library that stands in for one says so in the device's name."""
        return self.name == "cuda" and not self.is_stand_in

    @property
    def is_stand_in(self) -> bool:
        """Whether the library of CUDA's is one of the tests', which runs kernels on the CPU."""
        return self.name == "cuda" and self.device.startswith("stand-in for a GPU")

    @property
    def simulated(self) -> str:
        """What a figure says of its times; empty where they are a GPU's."""
        if self.on_gpu:
            return ""
        if self.is_stand_in:
            return "simulated: a stand-in for a GPU, whose times mean nothing"
        if self.name == "threads":
            return "simulated: kernels are threads on the CPU"
        return "simulated: fibres on the CPU, in virtual time"


@dataclass(frozen=True, slots=True)
class AttachedSsd:
    """One SSD that kernels use. Lists go by namespace, counted from 0."""

    profile: str
    queues: int
    queue_depth: int
    queue_placement: str
    max_transfer_bytes: int
    lba_bytes: tuple[int, ...]
    namespace_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters since the SSDs were attached, over all of them."""

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


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """What the software cache did."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    write_backs: int = 0
    waits: int = 0

    @property
    def hit_rate(self) -> float:
        """Hits among all accesses, 0 to 1."""
        accesses = self.hits + self.misses
        return self.hits / accesses if accesses else 0.0


@dataclass(frozen=True)
class Outcome:
    """What every workload answers.

    Attributes:
        verified: every result equals that of a plain computation on the CPU, or lies within the stated tolerance.
        mismatches: results that do not.
        max_error: the largest relative error, where results are not whole numbers.
        io_errors: accesses that failed.
        duration_ns: of the kernels, on the SSDs' clock.
        commands: NVMe commands of the kernels.
        cache: what the software cache did.
        backend: what ran the kernels.
    """

    verified: bool = False
    mismatches: int = 0
    max_error: float = 0.0
    io_errors: int = 0
    duration_ns: int = 0
    commands: int = 0
    cache: CacheFigures = field(default_factory=CacheFigures)
    backend: str = ""

    @classmethod
    def from_core(cls, found: Any) -> Self:
        """From the compiled module's object of the same name."""
        values = {item.name: _plain(getattr(found, item.name)) for item in fields(cls)}
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; arrays are left out."""
        return {key: value for key, value in asdict(self).items() if not isinstance(value, np.ndarray)}


@dataclass(frozen=True)
class MeanResult(Outcome):
    """The mean of an array."""

    mean: float = 0.0


@dataclass(frozen=True)
class BfsResult(Outcome):
    """A breadth-first search: each vertex's level, 2^32 - 1 where it was not reached."""

    source: int = 0
    depth: int = 0
    reached: int = 0
    levels: NDArray[np.uint32] = field(repr=False, default_factory=lambda: np.zeros(0, np.uint32))


@dataclass(frozen=True)
class SpmvResult(Outcome):
    """A sparse matrix times a vector."""

    y: NDArray[np.float64] = field(repr=False, default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class PagerankResult(Outcome):
    """Each vertex's rank."""

    ranks: NDArray[np.float64] = field(repr=False, default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True)
class CtcPoint:
    """One ratio of computation to communication: without and with overlap, and what could be had at best."""

    ratio: float
    sync_ns: int
    async_ns: int
    speedup: float
    ideal: float


@dataclass(frozen=True)
class CtcResult(Outcome):
    """The sweep from computation to communication."""

    communication_ns: int = 0
    points: tuple[CtcPoint, ...] = ()
    peak_speedup: float = 0.0
    worst_deviation: float = 0.0


@dataclass(frozen=True)
class RandomIoResult(Outcome):
    """Reads or writes at random places."""

    iops: float = 0.0
    bytes_per_s: float = 0.0


@dataclass(frozen=True)
class DlrmResult(Outcome):
    """Recommendations: the scores of the last batch."""

    products: str = ""
    samples: int = 0
    scores: NDArray[np.float32] = field(repr=False, default_factory=lambda: np.zeros(0, np.float32))


def _plain(value: Any) -> Any:
    kind = type(value).__name__
    if kind == "CacheFigures":
        return CacheFigures(**{item.name: getattr(value, item.name) for item in fields(CacheFigures)})
    if isinstance(value, list):
        return tuple(CtcPoint(**{item.name: getattr(point, item.name) for item in fields(CtcPoint)}) for point in value)
    return value
