"""attach() and what it gives: SSDs, the device that runs kernels on them, and the compiled kernels as methods."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from flashmob.checks import checked_seconds
from flashmob.device import core_device, core_module, on_engine
from flashmob.errors import ConfigError
from flashmob.gpu.arrays import Array, View, view_of
from flashmob.gpu.inputs import Access, Graph
from flashmob.gpu.results import (
    AttachedSsd,
    Backend,
    BfsResult,
    CtcResult,
    DlrmResult,
    MeanResult,
    Outcome,
    PagerankResult,
    RandomIoResult,
    SpmvResult,
    Stats,
)
from flashmob.models import Profile
from flashmob.profiles import changes_errors, load_profile, namespace_overrides, with_overrides

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from flashmob import _core

_ELEMENT_BYTES = (1, 2, 4, 8)
# Beyond this a wait lasts longer than any machine.
_LONGEST_WAIT_S = 1e9
# How the name of an SSD that another process serves begins.
SOCKET = "gpu-socket:"


def backend(name: str = "auto", clock: str = "auto") -> Backend:
    """What attach() would run kernels on, and why, without attaching anything."""
    return _backend(core_module().gpu_choose_backend(name, clock))


def _backend(info: _core.GpuBackend) -> Backend:
    return Backend(**{item.name: getattr(info, item.name) for item in fields(Backend)})


class Gpu:
    """SSDs, and what runs kernels on them; use it as a context manager, or call close(). Made by attach().

    Calls from several threads wait for each other.
    """

    def __init__(self, ssds: Sequence[Profile] | str, options: Mapping[str, Any]) -> None:
        """Starts the SSDs, or connects to the one that another process serves at the socket that is named.

        Raises:
            ConfigError: naming what is wrong and the fix.
        """
        core = core_module()
        core_options = core.GpuOptions()
        for key, value in options.items():
            setattr(core_options, key, value)
        self._lock = threading.RLock()
        self._open_core: _core.Gpu | None = (
            core.gpu_attach_remote(ssds, core_options)
            if isinstance(ssds, str)
            else core.gpu_attach([core_device(profile) for profile in ssds], core_options)
        )
        self.backend = _backend(self._core.backend())
        self.ssds = tuple(_ssd(self._core.ssd_info(index)) for index in range(self._core.ssds()))

    def __repr__(self) -> str:
        state = " closed" if self._open_core is None else ""
        return f"<Gpu {self.backend.name} {', '.join(ssd.profile for ssd in self.ssds)}{state}>"

    # --- Memory and data ---

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike = "uint8", *, placement: str = "device") -> Array:
        """Memory that kernels and SSDs reach, zeroed, page-aligned.

        Args:
            shape: of the array.
            dtype: of its elements.
            placement: host or device, which host code reaches, too; or near, a GPU's own memory where all SSDs' engines
                run on that GPU, which host code reaches by copy_out() and copy_in() alone. `placement` and `device` of
                what is made say where it lies.
        """
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = max(int(np.prod(dims, dtype=np.int64)) * np.dtype(dtype).itemsize, 1)
        with self._lock:
            near = placement == "near"
            memory = self._core.allocate_near(nbytes, True) if near else self._core.allocate(nbytes, placement)
        return Array(memory, dims, dtype, on_gpu=self.backend.on_gpu)

    def copy_out(self, array: Array) -> NDArray[Any]:
        """A copy in the host's memory, wherever the array lies."""
        out = np.empty(array.shape, array.dtype)
        with self._lock:
            self._core.copy(out.ctypes.data, array.address, array.nbytes)
        return out

    def copy_in(self, array: Array, values: Any) -> None:
        """Fills the array, wherever it lies, with `values` of its shape."""
        given = np.ascontiguousarray(np.broadcast_to(np.asarray(values, array.dtype), array.shape))
        with self._lock:
            self._core.copy(array.address, given.ctypes.data, array.nbytes)

    def write(self, lba: int, array: Any, *, ssd: int = 0, namespace: int = 0) -> None:
        """Writes all of an array, whole blocks, through the SSD's NVMe driver."""
        with self._lock, self._lent(array, "array", writable=False) as view:
            self._core.write(ssd, namespace, lba, view.address, view.nbytes)

    def read(self, lba: int, array: Any, *, ssd: int = 0, namespace: int = 0) -> None:
        """Fills all of an array, whole blocks, through the SSD's NVMe driver."""
        with self._lock, self._lent(array, "array", writable=True) as view:
            self._core.read(ssd, namespace, lba, view.address, view.nbytes)

    def load_file(self, path: str | os.PathLike[str], lba: int = 0, *, ssd: int = 0, namespace: int = 0) -> int:
        """Writes a file to the blocks from `lba` on, reads it back and compares; returns its size in bytes."""
        with self._lock:
            return self._core.load_file(ssd, namespace, lba, os.fspath(path))

    # --- Service and figures ---

    def start_service(self) -> None:
        """Starts who takes completions in; kernels do so by themselves."""
        with self._lock:
            self._core.start_service()

    def stop_service(self) -> None:
        """Lets commands in flight end, then stops who takes completions in."""
        with self._lock:
            self._core.stop_service()

    def drain(self, timeout_s: float = 10.0) -> bool:
        """Waits until no command is in flight; whether that is so."""
        limit_s = checked_seconds("timeout_s", timeout_s, may_be_zero=True)
        with self._lock:
            return self._core.drain(int(min(limit_s, _LONGEST_WAIT_S) * 1e9))

    def stats(self) -> Stats:
        """Counters since the SSDs were attached."""
        with self._lock:
            found = self._core.stats()
        return Stats(**{item.name: getattr(found, item.name) for item in fields(Stats)})

    # --- Kernels on data of the caller's ---

    def gather_blocks(
        self, lbas: Iterable[int], out: Any = None, *, blocks: int = 1, ssd: int = 0, namespace: int = 0
    ) -> Any:
        """Reads `blocks` blocks at each address, all at once, each by a thread of its own.

        Args:
            lbas: the first block of each.
            out: where they go, one behind the other; an Array is made if it is left out.
            blocks: at each address.
            ssd: which SSD.
            namespace: counted from 0.

        Returns:
            `out`.
        """
        where = _addresses(lbas)
        if out is None:
            out = self._room(where, blocks, ssd, namespace)
        with self._lock, self._lent(out, "out", writable=True, for_kernels=True) as view:
            self._begin(view, where, (ssd, namespace, blocks), None, write=False).wait()
        return out

    def scatter_blocks(
        self, lbas: Iterable[int], values: Any, *, blocks: int = 1, ssd: int = 0, namespace: int = 0
    ) -> None:
        """Writes `blocks` blocks at each address from `values`, all at once; of equal addresses one wins."""
        where = _addresses(lbas)
        with self._lock, self._lent(values, "values", writable=False, for_kernels=True) as view:
            self._begin(view, where, (ssd, namespace, blocks), None, write=True).wait()

    def gather_blocks_async(
        self,
        lbas: Iterable[int],
        out: Any = None,
        *,
        blocks: int = 1,
        ssd: int = 0,
        namespace: int = 0,
        stream: Any = None,
    ) -> BlockMove:
        """gather_blocks() that is begun and not awaited; `out` of what is returned is where the blocks go.

        Args:
            lbas: the first block of each.
            out: memory that the SSD reaches: the host's, or what empty() has made; made if it is left out.
            blocks: at each address.
            ssd: which SSD.
            namespace: counted from 0.
            stream: on a GPU, a CUDA stream (a number, or what PyTorch and CuPy have): the blocks are moved after what is
                in it, and what is put there next comes after them.
        """
        where = _addresses(lbas)
        if out is None:
            out = self._room(where, blocks, ssd, namespace)
        with self._lock:
            return self._begin(
                self._in_reach(out, "out", writable=True), where, (ssd, namespace, blocks), stream, out=out
            )

    def scatter_blocks_async(
        self,
        lbas: Iterable[int],
        values: Any,
        *,
        blocks: int = 1,
        ssd: int = 0,
        namespace: int = 0,
        stream: Any = None,
    ) -> BlockMove:
        """scatter_blocks() that is begun and not awaited; `values` stay as they are until it has ended."""
        view = self._in_reach(values, "values", writable=False)
        with self._lock:
            return self._begin(view, _addresses(lbas), (ssd, namespace, blocks), stream, write=True, out=values)

    def gather(
        self, indices: Any, out: Any = None, *, dtype: DTypeLike = "float32", ssd: int = 0, access: Access | None = None
    ) -> Any:
        """Elements of an array that begins at block 0 of an SSD's first namespace, through the software cache.

        Args:
            indices: any integers; the result has their shape.
            out: where the elements go; an Array is made if it is left out.
            dtype: of the elements, 1, 2, 4 or 8 bytes; that of `out` if it is given.
            ssd: which SSD.
            access: cache size, line size, policy, threads.

        Returns:
            `out`.

        Raises:
            OSError: if an element could not be read.
        """
        where = np.asarray(indices)
        flat = _indices(where)
        if out is None:
            out = self.empty(where.shape, dtype)
        # Copied to and from memory of the kernel's own, so it may lie anywhere.
        view = view_of(out, "out", writable=True, on_gpu=self.backend.on_gpu)
        with self._lock:
            self._move_elements("gpu_gather", view, flat, ssd, access or Access())
        return out

    def scatter(self, indices: Any, values: Any, *, ssd: int = 0, access: Access | None = None) -> None:
        """The reverse of gather(): stores elements; they are on the SSD when this returns."""
        where = _indices(np.asarray(indices))
        view = view_of(values, "values", writable=False, on_gpu=self.backend.on_gpu)
        with self._lock:
            self._move_elements("gpu_scatter", view, where, ssd, access or Access())

    # --- Workloads: they write their own data over namespace 0 of every SSD, and check their results ---

    def mean(self, count: int = 1 << 16, *, access: Access | None = None, seed: int = 1) -> MeanResult:
        """The mean of `count` random floats that lie on the SSDs."""
        options = core_module().GpuMeanOptions()
        options.access, options.count, options.seed = (access or Access()).to_core(), count, seed
        return MeanResult.from_core(self._run("gpu_run_mean", options))

    def bfs(self, graph: Graph, source: int | None = None, *, access: Access | None = None) -> BfsResult:
        """Breadth-first search from a vertex, by default the busiest one; the graph lies on the SSDs."""
        start = graph.busiest_vertex() if source is None else source
        return BfsResult.from_core(self._run("gpu_run_bfs", graph._core, start, (access or Access()).to_core()))

    def spmv(self, graph: Graph, x: Any, *, access: Access | None = None) -> SpmvResult:
        """The graph's matrix of weights times a vector."""
        vector = np.ascontiguousarray(x, np.float32)
        return SpmvResult.from_core(self._run("gpu_run_spmv", graph._core, vector, (access or Access()).to_core()))

    def pagerank(
        self, graph: Graph, *, iterations: int = 10, damping: float = 0.85, access: Access | None = None
    ) -> PagerankResult:
        """The rank of each vertex."""
        options = core_module().GpuPagerankOptions()
        options.access, options.iterations, options.damping = (access or Access()).to_core(), iterations, damping
        return PagerankResult.from_core(self._run("gpu_run_pagerank", graph._core, options))

    def ctc(self, **options: Any) -> CtcResult:
        """Computation against communication, with and without overlap: threads, commands, bytes, ratios, seed."""
        return CtcResult.from_core(self._run("gpu_run_ctc", _filled(core_module().GpuCtcOptions(), options)))

    def random_io(self, **options: Any) -> RandomIoResult:
        """Random reads or writes over all SSDs: write, bytes, threads, in_flight, commands, span_blocks, seed."""
        return RandomIoResult.from_core(
            self._run("gpu_run_random_io", _filled(core_module().GpuRandomIoOptions(), options))
        )

    def dlrm(self, config: int = 1, *, access: Access | None = None, **options: Any) -> DlrmResult:
        """Recommendation inference with the paper's configuration 1, 2 or 3.

        Options: embedding_dim, batch, batches, asynchronous, most_rows, clicks (a Criteo file), seed.
        """
        core_options = _filled(core_module().gpu_dlrm_options(config), options)
        core_options.access = (access or Access()).to_core()
        return DlrmResult.from_core(self._run("gpu_run_dlrm", core_options))

    # --- The end ---

    def close(self) -> None:
        """Stops the service and the SSDs. Arrays keep their memory. Idempotent."""
        with self._lock:
            self._open_core = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _core(self) -> _core.Gpu:
        if self._open_core is None:
            raise RuntimeError("the GPU is detached from its SSDs")
        return self._open_core

    @contextmanager
    def _lent(self, array: Any, what: str, *, writable: bool, for_kernels: bool = False) -> Iterator[View]:
        """Memory of the array's that host code reaches: a GPU's own is copied there, and back if it is written to.

        `for_kernels`: host code does not look at it.
        """
        view = view_of(array, what, writable=writable, on_gpu=self.backend.on_gpu)
        # SSDs reach what empty() has made, even in a GPU's own memory.
        reached = not view.on_device or (for_kernels and isinstance(array, Array))
        if reached or view.nbytes == 0:
            yield view
            return
        staged = self.empty(view.shape, view.dtype, placement="host")
        if not writable:
            self._core.copy(staged.address, view.address, view.nbytes)
        yield replace(view, address=staged.address, owner=(view.owner, staged), on_device=False)
        if writable:
            self._core.copy(view.address, staged.address, view.nbytes)

    def _run(self, function: str, *arguments: Any) -> Any:
        with self._lock:
            return getattr(core_module(), function)(self._core, *arguments)

    def _lba_bytes(self, ssd: int, namespace: int) -> int:
        if not 0 <= ssd < len(self.ssds):
            raise ConfigError(f"ssd = {ssd} is not possible: SSDs 0 to {len(self.ssds) - 1} are attached")
        sizes = self.ssds[ssd].lba_bytes
        if not 0 <= namespace < len(sizes):
            raise ConfigError(f"namespace = {namespace} is not possible: SSD {ssd} has {len(sizes)}, counted from 0")
        return sizes[namespace]

    def _in_reach(self, array: Any, what: str, *, writable: bool) -> View:
        view = view_of(array, what, writable=writable, on_gpu=self.backend.on_gpu)
        if view.on_device and not isinstance(array, Array):
            raise ConfigError(
                f"{what} lies in memory of the GPU that SSDs do not reach; "
                'use gpu.empty(..., placement="near"), or the call that waits, which copies'
            )
        return view

    def _room(self, lbas: NDArray[np.uint64], blocks: int, ssd: int, namespace: int) -> Array:
        return self.empty((len(lbas), blocks * self._lba_bytes(ssd, namespace)), np.uint8)

    def _begin(
        self,
        view: View,
        lbas: NDArray[np.uint64],
        where: tuple[int, int, int],
        stream: Any,
        *,
        write: bool = False,
        out: Any = None,
    ) -> BlockMove:
        ssd, namespace, blocks = where
        needed = len(lbas) * blocks * self._lba_bytes(ssd, namespace)
        if view.nbytes != needed:
            raise ConfigError(f"the array has {view.nbytes} bytes, but {len(lbas)} x {blocks} blocks have {needed}")
        handle = stream_handle(stream)
        if handle is not None and not self.backend.on_gpu:
            raise ConfigError(f"stream is not possible: kernels run as {self.backend.name}, without CUDA; leave it out")
        begun = core_module().gpu_move_blocks(self._core, write, ssd, namespace, lbas, blocks, view.address, handle)
        return BlockMove(begun, self._lock, out, view)

    def _move_elements(self, function: str, view: View, indices: NDArray[np.uint64], ssd: int, access: Access) -> None:
        if view.dtype.itemsize not in _ELEMENT_BYTES:
            raise ConfigError(f"elements of {view.dtype} are not possible; use 1, 2, 4 or 8 bytes")
        if view.nbytes != len(indices) * view.dtype.itemsize:
            raise ConfigError(
                f"the array has {view.nbytes // view.dtype.itemsize} elements, but there are {len(indices)} indices"
            )
        options = core_module().GpuElementOptions()
        options.access, options.ssd, options.element_bytes = access.to_core(), ssd, view.dtype.itemsize
        _raise_for(Outcome.from_core(self._run(function, options, indices, view.address)))


class BlockMove:
    """Blocks that have begun to move. Made by Gpu.gather_blocks_async() and scatter_blocks_async()."""

    def __init__(self, core: _core.GpuBlockMove, lock: threading.RLock, out: Any, view: View) -> None:
        self._core, self._lock, self._view = core, lock, view
        self.out = out

    def done(self) -> bool:
        """Whether it has ended, and with it all that is in its stream."""
        with self._lock:
            return self._core.done()

    def wait(self) -> Any:
        """Waits for the end; `out`.

        Raises:
            OSError: if a block could not be moved.
        """
        with self._lock:
            _raise_for(Outcome.from_core(self._core.wait()))
        return self.out


def stream_handle(stream: Any) -> int | None:
    """The cudaStream_t of what names a stream: None, a number, or a stream of PyTorch, CuPy or cuda.core."""
    if stream is None or isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise ConfigError(
        f"stream of type {type(stream).__name__} is none of CUDA's; give a number, or PyTorch's or CuPy's"
    )


def _addresses(lbas: Iterable[int]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(list(lbas) if not isinstance(lbas, np.ndarray) else lbas, np.uint64)


def _raise_for(outcome: Outcome) -> None:
    if outcome.io_errors:
        raise OSError(f"{outcome.io_errors} accesses failed; are the addresses within the namespace?")


def _indices(where: NDArray[Any]) -> NDArray[np.uint64]:
    if where.size and where.dtype.kind not in "iu":
        raise ConfigError(f"indices of type {where.dtype} are not possible; use integers")
    if where.dtype.kind == "i" and where.size and int(where.min()) < 0:
        raise ConfigError(f"index {int(where.min())} is not possible; count from 0")
    return np.ascontiguousarray(where.reshape(-1), np.uint64)


def _filled(core_options: Any, options: Mapping[str, Any]) -> Any:
    for key, value in options.items():
        if key.startswith("_") or not hasattr(core_options, key):
            known = ", ".join(name for name in dir(core_options) if not name.startswith("_"))
            raise ConfigError(f"{key} is no option; use one of {known}")
        setattr(core_options, key, value)
    return core_options


def _ssd(info: _core.GpuSsd) -> AttachedSsd:
    return AttachedSsd(
        profile=info.profile,
        queues=info.queues,
        queue_depth=info.queue_depth,
        queue_placement=info.queue_placement,
        max_transfer_bytes=info.max_transfer_bytes,
        lba_bytes=tuple(info.lba_bytes),
        namespace_bytes=tuple(info.namespace_bytes),
    )


def attach(
    *ssds: str | os.PathLike[str] | Profile,
    backend: str = "auto",
    clock: str = "auto",
    service: str = "kernel",
    queues: int = 1,
    queue_depth: int = 256,
    queue_placement: str = "auto",
    schedule: str = "timed",
    seed: int = 1,
    size: str | int | None = None,
    media: str | None = None,
    engine: str | None = None,
    sms: int | None = None,
    set: Mapping[str, Any] | None = None,  # noqa: A002  (named as on the command line)
) -> Gpu:
    """Starts emulated SSDs and attaches the GPU to them, or the CPU in its place.

    Args:
        ssds: a packaged profile's name, a path or a Profile for each; or gpu-socket:PATH, one SSD that another process
            serves (`flashmob gpu serve`), in real time.
        backend: auto, cuda, fibres (CPU, virtual time) or threads (CPU, real time).
        clock: auto, virtual or real.
        service: who takes completions in: kernel (a resident one), host (a thread) or callers (those that wait).
        queues: I/O queue pairs on each SSD.
        queue_depth: entries of each.
        queue_placement: where the queues' memory lies, host or device; auto: device where all engines are on this GPU.
        schedule: fibres only: timed, or random to look for faults.
        seed: fibres only: equal seeds, equal runs.
        size: of each SSD's first namespace, such as "1G".
        media: of each SSD's first namespace: memory, generated, file:PATH or cow:PATH.
        engine: who serves the SSDs' I/O queues: host or gpu; the profiles' choice if it is left out.
        sms: GPU engine: multiprocessors that each SSD takes.
        set: dotted key -> value, other changes of the profiles.

    Raises:
        ConfigError: naming what is wrong and the fix.
    """
    wanted = {**namespace_overrides(size, media), **(set or {})}
    if not ssds:
        raise ConfigError("attach needs an SSD; name a profile, such as d7-ps1010")
    options = {
        "backend": backend,
        "clock": clock,
        "service": service,
        "queues": queues,
        "queue_depth": queue_depth,
        "queue_placement": queue_placement,
        "schedule": schedule,
        "seed": seed,
    }
    sockets = [ssd for ssd in ssds if isinstance(ssd, str) and ssd.startswith(SOCKET)]
    if sockets:
        if len(ssds) > 1:
            raise ConfigError(f"{sockets[0]} beside other SSDs is not possible: attach one that is served by itself")
        if wanted or engine is not None or sms is not None:
            raise ConfigError(
                f"{sockets[0]} is configured by who serves it: leave size, media, engine, sms and set out"
            )
        return Gpu(sockets[0].removeprefix(SOCKET), options)
    with changes_errors():
        profiles = [
            with_overrides(ssd, wanted) if isinstance(ssd, Profile) else load_profile(ssd, wanted) for ssd in ssds
        ]
        return Gpu([on_engine(profile, engine, sms, wanted) for profile in profiles], options)
