"""What kernels are given besides arrays: how to reach their data, and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from flashmob.device import core_module
from flashmob.units import parse_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashmob import _core


@dataclass(frozen=True, slots=True)
class Access:
    """How a kernel reaches its data.

    Attributes:
        access: plain (from memory, no SSD), cached (software cache), uncached (a command for every access) or
            share_table (buffers of the threads, shared by all who want the same block).
        cache_bytes: size of the software cache; text such as "1M" is understood.
        line_bytes: a line of the cache, a multiple of the block size; uncached: what one command moves.
        policy: direct, lru, clock, fifo or s3fifo.
        threads: of each kernel, a multiple of 32.
    """

    access: str = "cached"
    cache_bytes: int | str = 1 << 20
    line_bytes: int | str = 4096
    policy: str = "clock"
    threads: int = 256

    def to_core(self) -> _core.GpuAccess:
        """The compiled module's options."""
        core: _core.GpuAccess = core_module().GpuAccess()
        core.access, core.policy, core.threads = self.access, self.policy, self.threads
        core.cache_bytes, core.line_bytes = parse_size(self.cache_bytes), parse_size(self.line_bytes)
        return core


class Graph:
    """A graph in compressed sparse rows: offsets (vertices + 1), targets and weights (edges)."""

    def __init__(
        self,
        offsets: Sequence[int] | NDArray[Any],
        targets: Sequence[int] | NDArray[Any],
        weights: Sequence[float] | NDArray[Any] | None = None,
    ) -> None:
        """Takes a graph of the caller's; edges without weights weigh 1.

        Raises:
            ConfigError: if the arrays are no graph.
        """
        edges = np.ascontiguousarray(targets, np.uint64)
        self._core: _core.GpuGraph = core_module().GpuGraph(
            np.ascontiguousarray(offsets, np.uint64),
            edges,
            np.ones(len(edges), np.float32) if weights is None else np.ascontiguousarray(weights, np.float32),
        )

    @classmethod
    def generate(cls, kind: str = "uniform", *, scale: int = 10, degree: int = 16, seed: int = 1) -> Self:
        """Draws a graph of 2^scale vertices: uniform, or kronecker with the parameters of Graph500."""
        made = cls.__new__(cls)
        made._core = core_module().gpu_make_graph(kind, scale, degree, seed)
        return made

    @property
    def vertices(self) -> int:
        """How many vertices there are."""
        return self._core.vertices

    @property
    def edges(self) -> int:
        """How many edges there are, each direction counted."""
        return self._core.edges

    def __repr__(self) -> str:
        return f"<Graph vertices={self.vertices} edges={self.edges}>"

    @property
    def offsets(self) -> NDArray[np.uint64]:
        """Where each vertex's edges begin."""
        return self._core.offsets

    @property
    def targets(self) -> NDArray[np.uint64]:
        """Where each edge leads."""
        return self._core.targets

    @property
    def weights(self) -> NDArray[np.float32]:
        """Each edge's weight."""
        return self._core.weights

    def busiest_vertex(self) -> int:
        """The vertex with the most edges: where to start a search from."""
        return self._core.busiest_vertex()
