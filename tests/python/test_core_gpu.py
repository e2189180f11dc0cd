"""Threads that do their own I/O, from Python: arrays of any library go in and come out, kernels' results are right."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flashmob.gpu
import numpy as np
import pytest
from flashmob import ConfigError
from flashmob.gpu import Access, Array, Gpu, Graph
from flashmob.profiles import parse_profile
from numpy.typing import NDArray

FAST = '[timing]\nread_latency_ns = "10us"\nwrite_latency_ns = "10us"\nread_iops = 5e6\nwrite_iops = 5e6\n'
SMALL = Access(cache_bytes="64K", threads=64)


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    with flashmob.gpu.attach(parse_profile(FAST), backend="fibres", queues=2, queue_depth=64, size="4M") as attached:
        yield attached


def floats(count: int) -> NDArray[np.float32]:
    return np.random.default_rng(3).random(count, np.float32)


class OnlyDlpack:
    """An array of a library that knows DLPack and nothing else."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class OnGpu:
    """An array that says it lies on a GPU."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (4,), "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3}


def test_says_what_runs_kernels_and_why(gpu: Gpu) -> None:
    assert gpu.backend.name == "fibres"
    assert gpu.backend.clock == "virtual"
    assert "asked for" in gpu.backend.reason
    assert not gpu.backend.on_gpu
    chosen = flashmob.gpu.backend()
    assert chosen.name in ("fibres", "cuda")
    if chosen.name == "fibres":
        assert "fibres on the CPU" in chosen.reason
        with pytest.raises(ConfigError, match=r"gpu\.backend = \"cuda\""):
            flashmob.gpu.backend("cuda")


def test_describes_the_ssds(gpu: Gpu) -> None:
    (ssd,) = gpu.ssds
    assert (ssd.queues, ssd.queue_depth, ssd.queue_placement) == (2, 64, "host")
    assert ssd.lba_bytes == (512,)
    assert ssd.namespace_bytes == (4 << 20,)


def test_gathers_elements(gpu: Gpu) -> None:
    data = floats(1 << 18)
    gpu.write(0, data)
    indices = np.random.default_rng(4).integers(0, len(data), (30, 7))
    found = gpu.gather(indices, access=SMALL)
    assert isinstance(found, Array)
    assert found.shape == (30, 7)
    assert np.array_equal(found, data[indices])
    for dtype in (np.uint8, np.int16, np.float64):
        assert np.array_equal(gpu.gather([0, 99, 12_345], dtype=dtype, access=SMALL), data.view(dtype)[[0, 99, 12_345]])
    assert gpu.stats().failed == 0


def test_scatters_elements(gpu: Gpu) -> None:
    data = floats(4096)
    gpu.write(0, data)
    indices = np.array([5, 4095, 1024])
    gpu.scatter(indices, np.array([1, 2, 3], np.float32), access=SMALL)
    data[indices] = [1, 2, 3]
    back = np.zeros_like(data)
    gpu.read(0, back)
    assert np.array_equal(back, data)


@pytest.mark.parametrize("blocks", [1, 3])
def test_moves_blocks_straight_to_the_callers_memory(gpu: Gpu, blocks: int) -> None:
    lbas = np.array([0, 77, 8000, 12])
    data = np.random.default_rng(5).integers(0, 256, (4, 512 * blocks), dtype=np.uint8)
    gpu.scatter_blocks(lbas, data, blocks=blocks)
    for out in (None, np.zeros_like(data), gpu.empty(data.shape)):
        found = gpu.gather_blocks(lbas, out, blocks=blocks)
        assert out is None or found is out
        assert np.array_equal(found, data)
    assert gpu.gather_blocks([]).shape == (0, 512)


def test_blocks_move_while_the_caller_goes_on(gpu: Gpu) -> None:
    data = np.random.default_rng(6).integers(0, 256, (3, 1024), dtype=np.uint8)
    writing = gpu.scatter_blocks_async([4, 8, 2], data, blocks=2)
    writing.wait()
    assert writing.done()
    reading = [gpu.gather_blocks_async([8, 4], blocks=2), gpu.gather_blocks_async([2], data[2:].copy(), blocks=2)]
    first, second = (move.wait() for move in reading)
    assert np.array_equal(np.asarray(first), data[[1, 0]])
    assert np.array_equal(second, data[2:])
    assert reading[0].wait() is first
    kept = gpu.gather_blocks_async([0])
    gpu.close()
    del kept  # Waits, though the GPU is closed.


@pytest.mark.parametrize("stream", [7, type("Stream", (), {"cuda_stream": 7})(), type("Stream", (), {"ptr": 7})()])
def test_streams_need_a_gpu(gpu: Gpu, stream: object) -> None:
    with pytest.raises(ConfigError, match="without CUDA"):
        gpu.gather_blocks_async([0], stream=stream)
    with pytest.raises(ConfigError, match="none of CUDA's"):
        gpu.gather_blocks_async([0], stream="default")


def test_takes_arrays_of_any_library(gpu: Gpu) -> None:
    data = floats(4096)
    for form in (data, OnlyDlpack(data), data.tobytes(), memoryview(data), bytearray(data.tobytes())):
        gpu.write(0, np.zeros(4096, np.float32))
        gpu.write(0, form)
        out = np.zeros(4096, np.float32)
        gpu.read(0, OnlyDlpack(out))
        assert np.array_equal(out, data)
    torch_like = OnlyDlpack(np.zeros(3, np.float32))
    gpu.gather([1, 2, 3], torch_like, access=SMALL)
    assert np.array_equal(torch_like.array, data[1:4])


def test_arrays_offer_themselves_to_any_library(gpu: Gpu) -> None:
    made = gpu.empty((3, 4), np.int32, placement="host")
    assert (made.placement, made.nbytes, len(made)) == ("host", 48, 3)
    assert not made.numpy().any()
    made[1, 2] = 7
    assert made[1, 2] == 7
    shared = np.from_dlpack(made)
    shared[0, 0] = 9
    assert made[0, 0] == 9
    assert made.__dlpack_device__() == (1, 0)
    assert np.asarray(made).ctypes.data == made.address
    assert not hasattr(made, "__cuda_array_interface__")
    view = made.numpy()
    del made
    gpu.close()
    view[2, 3] = 1  # The view keeps the memory.


def test_near_arrays_are_filled_and_read_by_copies(gpu: Gpu) -> None:
    near = gpu.empty((2, 512), np.uint8, placement="near")
    gpu.copy_in(near, [[1], [2]])
    gpu.scatter_blocks([5, 9], near)
    gpu.copy_in(near, 0)
    gpu.gather_blocks([9, 5], near)
    assert gpu.copy_out(near)[:, 511].tolist() == [2, 1]


class FakeMemory:
    """What the compiled module gives where there is a GPU, as far as an array asks."""

    def __init__(self, placement: str) -> None:
        self.placement, self.address = placement, 4096

    def array(self, shape: list[int], kind: str, nbytes: int, device_type: int) -> Any:
        return type("Made", (), {"__dlpack__": lambda _: (shape, kind, nbytes, device_type)})()


def test_arrays_say_on_which_device_they_lie() -> None:
    pinned = Array(FakeMemory("host"), (2, 3), "float32", on_gpu=True)  # type: ignore[arg-type]
    assert pinned.__dlpack_device__() == (3, 0)
    assert pinned.__dlpack__() == ([2, 3], "f", 4, 3)
    assert pinned.__cuda_array_interface__["data"] == (4096, False)
    near = Array(FakeMemory("device"), (2, 3), "uint8", on_gpu=True)  # type: ignore[arg-type]
    assert near.__dlpack_device__() == (2, 0)
    assert near.__dlpack__(stream=1) == ([2, 3], "u", 1, 2)
    assert near.__cuda_array_interface__["shape"] == (2, 3)
    assert not hasattr(near, "__array_interface__")
    for wrong in (near.numpy, lambda: near[0], lambda: near.__dlpack__(dl_device=(1, 0))):
        with pytest.raises(ConfigError, match="copy_out"):
            wrong()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((512, 2), np.uint8)[:, 0], "contiguous"),
        ("text", "contiguous"),
        (17, "contiguous"),
        (OnGpu(), "lies on a GPU"),
        (np.zeros(511, np.uint8), "whole blocks of 512"),
    ],
)
def test_unfit_arrays_are_refused(gpu: Gpu, array: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gpu.write(0, array)


def test_read_only_arrays_are_not_written_to(gpu: Gpu) -> None:
    with pytest.raises(ConfigError, match="writable"):
        gpu.read(0, bytes(512))
    fixed = np.zeros(512, np.uint8)
    fixed.setflags(write=False)
    with pytest.raises(ConfigError, match="writable"):
        gpu.gather_blocks([0], fixed)
    gpu.write(0, fixed)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda gpu: gpu.gather([-1]), "index -1"),
        (lambda gpu: gpu.gather([0.5]), "use integers"),
        (lambda gpu: gpu.gather([1 << 40]), "beyond"),
        (lambda gpu: gpu.gather([0], dtype="complex128"), "1, 2, 4 or 8"),
        (lambda gpu: gpu.gather([0, 1], np.zeros(3, np.float32)), "3 elements"),
        (lambda gpu: gpu.gather([0], access=Access(policy="mru")), "policy"),
        (lambda gpu: gpu.gather([0], access=Access(line_bytes=1000)), "line_bytes"),
        (lambda gpu: gpu.gather_blocks([8192]), "beyond"),
        (lambda gpu: gpu.gather_blocks([0], blocks=0), "blocks = 0"),
        (lambda gpu: gpu.gather_blocks([0], ssd=1), "ssd = 1"),
        (lambda gpu: gpu.gather_blocks([0], namespace=1), "namespace = 1"),
        (lambda gpu: gpu.gather_blocks([0], np.zeros(100, np.uint8)), "100 bytes"),
        (lambda gpu: gpu.read(8192, np.zeros(512, np.uint8)), "8192 blocks"),
        (lambda gpu: gpu.empty(4, placement="disk"), "placement"),
        (lambda gpu: gpu.ctc(bites=3), "bites is no option"),
        (lambda gpu: gpu.dlrm(config=4), "4"),
        (lambda gpu: gpu.load_file("/nonexistent"), "/nonexistent"),
    ],
)
def test_mistakes_are_named(gpu: Gpu, call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call(gpu)


def test_attach_names_mistakes() -> None:
    with pytest.raises(ConfigError, match="needs an SSD"):
        flashmob.gpu.attach()
    with pytest.raises(ConfigError, match=r"gpu\.service"):
        flashmob.gpu.attach("unlimited", size="1M", service="nobody")
    with pytest.raises(ConfigError, match="fibres run in virtual time"):
        flashmob.gpu.attach("unlimited", size="1M", backend="fibres", clock="real")


def test_loads_files(gpu: Gpu, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    data = floats(3001)
    path.write_bytes(data.tobytes())
    assert gpu.load_file(path) == data.nbytes
    assert np.array_equal(gpu.gather([0, 3000, 1717], access=SMALL), data[[0, 3000, 1717]])


@pytest.mark.parametrize("service", ["kernel", "host", "callers"])
def test_service_and_figures(service: str) -> None:
    with flashmob.gpu.attach(parse_profile(FAST), backend="fibres", service=service, size="1M") as gpu:
        assert not gpu.stats().service_running
        gpu.gather_blocks(range(100))
        stats = gpu.stats()
        assert (stats.submitted, stats.completed, stats.in_flight, stats.failed) == (100, 100, 0, 0)
        assert stats.service == service
        assert stats.service_running
        assert gpu.drain()
        gpu.stop_service()
        assert not gpu.stats().service_running
    with pytest.raises(RuntimeError, match="detached"):
        gpu.stats()


def test_workloads_are_right_over_several_ssds() -> None:
    profile = parse_profile(FAST)
    with flashmob.gpu.attach(profile, profile, backend="fibres", queues=2, queue_depth=64, size="4M") as gpu:
        graph = Graph.generate("kronecker", scale=5, degree=4)
        mean = gpu.mean(2000, access=SMALL)
        assert mean.verified
        assert mean.mean == pytest.approx(0.5, abs=0.1)
        bfs = gpu.bfs(graph, access=SMALL)
        assert bfs.verified
        assert bfs.levels[bfs.source] == 0
        assert bfs.reached == np.count_nonzero(bfs.levels != np.iinfo(np.uint32).max)
        spmv = gpu.spmv(graph, np.ones(graph.vertices), access=SMALL)
        assert spmv.verified
        rows = np.repeat(np.arange(graph.vertices), np.diff(graph.offsets.astype(np.int64)))
        assert np.allclose(spmv.y, np.bincount(rows, graph.weights, graph.vertices), rtol=1e-4)
        ranks = gpu.pagerank(graph, iterations=3, access=SMALL)
        assert ranks.verified
        assert len(ranks.ranks) == graph.vertices
        assert gpu.random_io(commands=200, threads=32, span_blocks=64).verified


def test_graphs_of_the_callers() -> None:
    graph = Graph([0, 1, 2, 2], [1, 2])
    assert (graph.vertices, graph.edges) == (3, 2)
    assert list(graph.weights) == [1, 1]
    assert list(Graph([0, 0], []).targets) == []
    for offsets, targets in (([], []), ([1, 2], [0]), ([0, 2], [0]), ([0, 2, 1], [0]), ([0, 1], [1])):
        with pytest.raises(ConfigError):
            Graph(offsets, targets)
    with pytest.raises(ConfigError, match="kind"):
        Graph.generate("tree")


def test_command_line(tmp_path: Path) -> None:
    def flashmob_gpu(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "flashmob", "gpu", *arguments], capture_output=True, text=True, check=False
        )

    info = flashmob_gpu("info", "--backend", "fibres")
    assert info.returncode == 0
    assert "fibres" in info.stdout
    path = tmp_path / "result.json"
    run = flashmob_gpu("run", "mean", "--backend", "fibres", "--size", "1M", "--set", "count=1000", "--json", str(path))
    assert run.returncode == 0, run.stderr
    result = json.loads(path.read_text())
    assert result["schema"] == "flashmob-gpu-result"
    assert result["outcome"]["verified"] is True
    assert result["options"]["count"] == 1000
    assert result["provenance"]["command"].startswith("flashmob gpu run mean")
    for wrong in (("run", "sort"), ("run", "mean", "--set", "count"), ("run", "mean", "--ssds", "0")):
        assert flashmob_gpu(*wrong).returncode == 2


def test_check_leaves_results_and_a_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = subprocess.run(
        [sys.executable, "-m", "flashmob", "gpu", "check", "--quick", "--backend", "fibres", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "simulated: fibres on the CPU, in virtual time" in done.stdout
    document = json.loads((tmp_path / "gpu-check.json").read_text())
    assert document["all_verified"] is True
    assert {result["workload"] for result in document["results"]} == {"ctc", "random-io", "mean", "bfs", "dlrm"}
    assert all(result["backend"]["name"] == "fibres" for result in document["results"])
    assert (tmp_path / "gpu-check.png").stat().st_size > 10_000


def test_texts_of_one_line() -> None:
    graph = flashmob.gpu.Graph.generate("uniform", scale=6, degree=4)
    assert repr(graph) == f"<Graph vertices={graph.vertices} edges={graph.edges}>"
    with flashmob.gpu.attach("d7-ps1010", queues=2, size="16M") as gpu:
        assert repr(gpu) == f"<Gpu {gpu.backend.name} d7-ps1010>"
        # Arrays of results are theirs to print who asks for them.
        assert "levels" not in repr(gpu.bfs(graph))
    assert repr(gpu).endswith(" closed>")
