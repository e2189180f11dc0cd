"""Threads of a GPU that do their own I/O on emulated SSDs; without a GPU the same kernels run on the CPU.

    import flashmob.gpu

    with flashmob.gpu.attach("d7-ps1010", queues=4, size="1G") as gpu:
        print(gpu.backend.reason)
        gpu.load_file("embeddings.bin")
        values = gpu.gather([7, 42, 4_000_000], dtype="float32")

Times are nanoseconds (_ns) of the SSDs' clock, sizes bytes (_bytes).
"""

from flashmob.gpu.arrays import Array
from flashmob.gpu.device import Gpu, attach, backend
from flashmob.gpu.inputs import Access, Graph
from flashmob.gpu.results import (
    AttachedSsd,
    Backend,
    BfsResult,
    CacheFigures,
    CtcPoint,
    CtcResult,
    DlrmResult,
    MeanResult,
    Outcome,
    PagerankResult,
    RandomIoResult,
    SpmvResult,
    Stats,
)
from flashmob.gpu.serve import GpuServer, ServedClient, ServedStats

__all__ = [
    "Access",
    "Array",
    "AttachedSsd",
    "Backend",
    "BfsResult",
    "CacheFigures",
    "CtcPoint",
    "CtcResult",
    "DlrmResult",
    "Gpu",
    "GpuServer",
    "Graph",
    "MeanResult",
    "Outcome",
    "PagerankResult",
    "RandomIoResult",
    "ServedClient",
    "ServedStats",
    "SpmvResult",
    "Stats",
    "attach",
    "backend",
]
