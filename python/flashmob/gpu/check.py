"""flashmob gpu check: all workloads, at a size that the backend manages in minutes, as one JSON and a figure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from flashmob.gpu.bench import GpuResult, run_workload, save
from flashmob.gpu.device import attach, backend
from flashmob.gpu.inputs import Access
from flashmob.gpu.results import Backend
from flashmob.units import format_duration

PROFILE = "d7-ps1010"
# Beyond this nothing further is begun; what was left out is said.
_BUDGET_S = 180.0


@dataclass(frozen=True)
class Point:
    """One run: a workload, its options, and how many SSDs."""

    series: str
    workload: str
    options: dict[str, Any] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    ssds: int = 1


def points(on_gpu: bool, quick: bool) -> Iterator[Point]:
    """What is run, in this order; sizes are those of a GPU or of a CPU that stands in for one."""
    threads = 16384 if on_gpu else 128
    scale = 18 if on_gpu else 9
    cache = "64M" if on_gpu else "64K"
    large = "1G" if on_gpu else "4M"
    overlap: dict[str, Any] = {"threads": 4096 if on_gpu else 32, "commands": 256 if on_gpu else 64}
    if quick:
        overlap |= {"commands": 8, "ratios": [0.5, 1.0, 1.5]}
    yield Point("ctc", "ctc", overlap)
    for ssds in (1,) if quick else (1, 2, 3, 4):
        for size in (4096,) if quick else (4096, 512):
            for write in (False, True):
                load = {"threads": threads, "in_flight": 8, "commands": 1 << 20 if on_gpu else 2048}
                yield Point("random-io", "random-io", {**load, "bytes": size, "write": write}, ssds=ssds)
    for access in ("plain", "cached"):
        yield Point("mean", "mean", {"count": 1 << 26 if on_gpu else 1 << 13}, Access(access, cache, threads=threads))
    for workload in ("bfs",) if quick else ("bfs", "spmv", "pagerank"):
        extra = {"iterations": 2} if workload == "pagerank" else {}
        for graph in ("uniform",) if quick else ("uniform", "kronecker"):
            for access, cache_bytes in _ways(large, cache):
                options = {"graph": graph, "scale": scale, "degree": 16 if on_gpu else 8, **extra}
                yield Point("graph", workload, options, Access(access, cache_bytes, threads=threads))
    model = (
        {"batch": 256, "batches": 16, "most_rows": 100_000} if on_gpu else {"batch": 4, "batches": 3, "most_rows": 64}
    )
    for config in (1,) if quick else (1, 2, 3):
        for asynchronous in (False, True):
            options = {"config": config, "asynchronous": asynchronous, **model}
            yield Point("dlrm", "dlrm", options, Access("cached", cache, threads=threads))


def _ways(large: str, small: str) -> tuple[tuple[str, str], ...]:
    """Ways of access, with the size of the cache: one that holds everything, and one that does not."""
    return (("plain", small), ("cached", large), ("cached", small), ("share_table", small), ("uncached", small))


def run_check(
    out: Path, backend: str, served_by: tuple[str, int | None], *, quick: bool, console: Console, command: str
) -> bool:
    """Runs all points, writes out/gpu-check.json and the figures; whether every result was right.

    `served_by`: the SSDs' engine, host or gpu, and how many multiprocessors each takes there.
    """
    chosen = _announce(backend, console)
    start_s = time.monotonic()
    results: list[tuple[Point, GpuResult]] = []
    left_out = 0
    for point in points(chosen.on_gpu, quick):
        if time.monotonic() - start_s > _BUDGET_S:
            left_out += 1
            continue
        result = _run(point, chosen, served_by, command)
        results.append((point, result))
        console.print(_line(point, result), highlight=False, soft_wrap=True)
    if left_out:
        console.print(f"[yellow]{left_out} runs were left out after {_BUDGET_S:.0f} s[/]", highlight=False)
    save([result for _, result in results], out / "gpu-check.json", command)
    figures = _draw(results, out, chosen)
    right = all(result.verified for _, result in results)
    verdict = "every result is right" if right else "[bold red]some results are wrong[/]"
    console.print(f"{len(results)} runs in {time.monotonic() - start_s:.0f} s, {verdict}", highlight=False)
    console.print(f"written: {out / 'gpu-check.json'}{''.join(f', {path.name}' for path in figures)}", highlight=False)
    return right


def _announce(name: str, console: Console) -> Backend:
    chosen = backend(name)
    console.print(
        f"[bold]backend {chosen.name}[/] on {chosen.device}: {chosen.reason}", highlight=False, soft_wrap=True
    )
    if chosen.simulated:
        console.print(f"[yellow]{chosen.simulated}; sizes are small.[/]", highlight=False)
    return chosen


def _run(point: Point, chosen: Backend, served_by: tuple[str, int | None], command: str) -> GpuResult:
    engine, sms = served_by
    with attach(
        *[PROFILE] * point.ssds,
        backend=chosen.name,
        queues=16 if chosen.on_gpu else 4,
        queue_depth=1024 if chosen.on_gpu else 128,
        size="4G" if chosen.on_gpu else "64M",
        engine=engine,
        sms=sms,
        set={"engine.gpu_media": "device"} if chosen.on_gpu and engine == "gpu" else None,
    ) as gpu:
        return run_workload(gpu, point.workload, access=point.access, command=command, options=point.options)


def _line(point: Point, result: GpuResult) -> str:
    options = ", ".join(f"{key}={value}" for key, value in point.options.items() if key in _SHOWN)
    what = f"{point.workload} {point.access.access if point.series not in ('ctc', 'random-io') else ''}".strip()
    took = format_duration(result.outcome["duration_ns"], 3)
    state = "[green]right[/]" if result.verified else "[bold red]WRONG[/]"
    return f"{what:<18} {point.ssds} SSD  {options:<36} {took:>9}  {state}  [dim]{result.wall_seconds:.1f} s[/]"


_SHOWN = ("bytes", "write", "graph", "config", "asynchronous", "count")


def _draw(results: list[tuple[Point, GpuResult]], out: Path, chosen: Backend) -> list[Path]:
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        return []
    from flashmob.gpu.figures import draw_check

    note = f"{chosen.device}, backend {chosen.name}, {chosen.clock} time, SSDs as {PROFILE}"
    if chosen.simulated:
        note += f"; {chosen.simulated}"
    path = out / "gpu-check.png"
    draw_check(results, path, note)
    return [path]
