"""flashmob gpu figures: SwarmIO's evaluation of the SSD whose engine runs on the GPU, as one JSON and a figure.

On a GPU it measures. Without one the same sweeps run at small sizes on fibres in virtual time: that shows how model and
code behave, and says nothing about the speed of any GPU.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from flashmob.device import core_module
from flashmob.errors import ConfigError
from flashmob.gpu.bench import provenance
from flashmob.gpu.device import backend
from flashmob.gpu.results import Backend
from flashmob.result import Result
from flashmob.units import counted, format_duration

SCHEMA = "flashmob-gpu-figures"
SCHEMA_VERSION = 1
# Beyond this nothing further is begun; what was left out is said.
_BUDGET_S = 390.0
# Of few small points in real time.
_SETTLE_NS = 100_000_000
# A rate that the model never holds anything up at.
UNLIMITED = 1e10
DRIVE_IOPS, DRIVE_LATENCY_NS = 2.47e6, 50_000


@dataclass(frozen=True)
class Sizes:
    """How large the sweeps are: those of a GPU, or of a CPU that stands in for one."""

    threads: tuple[int, ...]
    most_threads: int
    queues: int
    entries: int
    targets: tuple[float, ...]
    queue_counts: tuple[int, ...]
    queue_entries: int
    block_sizes: tuple[int, ...]
    units: int
    movers: int
    unit_counts: tuple[int, ...]
    media_bytes: int
    host_media_bytes: int  # beyond the bus: what a GPU finds the pages of at once has its limits, too
    host_movers: int  # copies across the bus take longer, so more of them are under way
    settle_ns: int
    latency_ns: int  # of the sweeps without a drive to imitate


_BLOCKS = (512, 1024, 2048, 4096, 8192)
ON_GPU = Sizes(
    threads=(1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 21),
    most_threads=1 << 18,
    queues=1024,
    entries=256,
    targets=(5e6, 10e6, 20e6, 40e6, 60e6, 80e6, 100e6, 150e6, 200e6, UNLIMITED),
    queue_counts=(16, 64, 256, 1024, 2048, 4096),
    queue_entries=256,
    block_sizes=_BLOCKS,
    units=48,
    movers=6,
    unit_counts=(4, 8, 16, 32, 48, 56),
    media_bytes=4 << 30,
    host_media_bytes=1 << 30,
    host_movers=14,
    settle_ns=20_000_000,
    latency_ns=50_000,
)
ON_FIBRES = Sizes(
    threads=(32, 64, 128, 256, 512),
    most_threads=256,
    queues=4,
    entries=128,
    targets=(1e6, 2e6, 4e6, 8e6, UNLIMITED),
    queue_counts=(2, 8, 32, 128),
    queue_entries=16,
    block_sizes=_BLOCKS,
    units=2,
    movers=2,
    unit_counts=(1, 2, 4),
    media_bytes=1 << 20,
    host_media_bytes=1 << 20,
    host_movers=2,
    settle_ns=20_000,
    latency_ns=10_000,
)
QUICK = Sizes(
    threads=(32, 128),
    most_threads=64,
    queues=2,
    entries=64,
    targets=(1e6,),
    queue_counts=(2,),
    queue_entries=16,
    block_sizes=(512,),
    units=1,
    movers=1,
    unit_counts=(1,),
    media_bytes=1 << 18,
    host_media_bytes=1 << 18,
    host_movers=1,
    settle_ns=10_000,
    latency_ns=10_000,
)


@dataclass(frozen=True)
class Point:
    """One run: the sweep it belongs to, its place there, and the options of gpu/evaluation/evaluation.h."""

    series: str
    x: float
    label: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A point and what it found: a benchmark's result, and what only this engine has."""

    point: Point
    result: Result
    engine: dict[str, Any]
    document: dict[str, Any] = field(repr=False)


def points(sizes: Sizes) -> Iterator[Point]:
    """All runs, in the order in which they matter."""
    threads = sizes.most_threads
    full = {"threads": threads, "iops": UNLIMITED}
    for count in sizes.threads:
        drive = {"threads": count, "iops": DRIVE_IOPS, "latency_ns": DRIVE_LATENCY_NS}
        yield _point(sizes, "threads", count, f"{count} threads", drive)
    for media in ("host", "device"):
        for iops in sizes.targets:
            load = {"threads": threads, "iops": iops, "media": media}
            yield _point(sizes, f"targets-{media}", iops / 1e6, _rate(iops), load)
    one_by_one: dict[str, Any] = {"fetch_batch": 1, "per_request_updates": True}
    steps: tuple[tuple[str, dict[str, Any]], ...] = (
        ("one unit", {"units": 1, **one_by_one}),
        ("distributed", one_by_one),
        ("+ coalesced fetch", {"per_request_updates": True}),
        ("+ aggregated timing", {}),
    )
    for x, (label, options) in enumerate(steps):
        yield _point(sizes, "ablation", x, label, {**full, "queues": min(sizes.queues, 256), **options})
    for count in sizes.queue_counts:
        few = {"queues": count, "entries": sizes.queue_entries, "units": max(sizes.units, count // 256)}
        yield _point(sizes, "queues", count, counted(count, "queue"), {**full, **few})
    for size in sizes.block_sizes:
        yield _point(sizes, "block-sizes", size, f"{size} B", {**full, "bytes": size, "media": "host"})
    for media in ("host", "device"):
        for units in sizes.unit_counts:
            yield _point(sizes, f"units-{media}", units, f"{units} units", {**full, "units": units, "media": media})
    for statistics in (True, False):
        label = "with statistics" if statistics else "without"
        yield _point(sizes, "statistics", int(statistics), label, {**full, "statistics": statistics})


def _point(sizes: Sizes, series: str, x: float, label: str, options: dict[str, Any]) -> Point:
    given = {
        "queues": sizes.queues,
        "entries": sizes.entries,
        "units": sizes.units,
        "movers": sizes.movers,
        "media_bytes": sizes.media_bytes,
        "latency_ns": sizes.latency_ns,
        **options,
    }
    if given.get("media") == "host":
        given |= {"media_bytes": sizes.host_media_bytes, "movers": sizes.host_movers}
    return Point(series, x, label, {**given, **_times(sizes, given)})


def _times(sizes: Sizes, options: dict[str, Any]) -> dict[str, int]:
    """How long a load needs to settle, and then is measured: its whole backlog goes through the model first."""
    backlog_ns = 1e9 * min(options["threads"], options["queues"] * options["entries"]) / options["iops"]
    turn_ns = max(backlog_ns, options["latency_ns"])
    ramp_ns = int(sizes.settle_ns + 1.5 * turn_ns)
    return {"ramp_ns": ramp_ns, "measure_ns": int(max(5 * sizes.settle_ns, 2 * turn_ns))}


def _rate(iops: float) -> str:
    return "unlimited" if iops == UNLIMITED else f"{iops / 1e6:g} M/s"


def run_figures(out: Path, *, backend_name: str, quick: bool, console: Console, command: str) -> bool:
    """Runs all points, writes out/gpu-figures.json and the figure; whether all data were right."""
    chosen = backend(backend_name)
    _announce(chosen, console)
    sizes = _sizes(chosen, quick)
    start_s = time.monotonic()
    todo = list(points(sizes))
    runs, failures = _run_all(todo, chosen, console, command, start_s)
    limits = _media_limits(chosen, sizes) if runs and not failures else {}
    document = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "measured_on_gpu": chosen.on_gpu,
        "simulated": chosen.simulated,
        "backend": asdict(chosen),
        "media_limit_bytes_per_s": limits,
        "points": [_as_point(run, limits) for run in runs],
        "failed": failures,
        "left_out": len(todo) - len(runs) - len(failures),
        "bars": bars_of(runs, limits) if chosen.on_gpu else [],
        "wall_seconds": round(time.monotonic() - start_s, 1),
        "provenance": provenance(command),
    }
    out.mkdir(parents=True, exist_ok=True)
    path = out / "gpu-figures.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return _conclude(document, runs, limits, out, chosen, console)


def _sizes(chosen: Backend, quick: bool) -> Sizes:
    if chosen.on_gpu and not quick:
        return ON_GPU
    if chosen.name == "cuda":  # in real time, and on a stand-in for a GPU on a busy machine
        return replace(QUICK, settle_ns=_SETTLE_NS)
    return QUICK if quick else ON_FIBRES


def _announce(chosen: Backend, console: Console) -> None:
    console.print(f"[bold]backend {chosen.name}[/] on {chosen.device}: {chosen.reason}", highlight=False)
    if chosen.simulated:
        console.print(
            f"[yellow]{chosen.simulated}; the sweeps are small and show how model and code behave, not the"
            " speed of any GPU.[/]",
            highlight=False,
        )


def _run_all(
    todo: Sequence[Point], chosen: Backend, console: Console, command: str, start_s: float
) -> tuple[list[Run], list[dict[str, Any]]]:
    core = core_module()
    runs: list[Run] = []
    failures: list[dict[str, Any]] = []
    # A GPU has room for one point at a time; fibres stay on the thread that runs them.
    workers = 1 if chosen.name == "cuda" else min(2, os.cpu_count() or 1)
    gpu = core.gpu_open_evaluation(chosen.name) if chosen.name == "cuda" else None

    def one(point: Point) -> Run | None:
        if time.monotonic() - start_s > _BUDGET_S:
            return None
        evaluation = gpu or core.gpu_open_evaluation(chosen.name)
        options = core.GpuPointOptions()
        for key, value in point.options.items():
            setattr(options, key, value)
        report = evaluation.run(options, command)
        document = json.loads(report.result)
        return Run(point, Result.from_dict(document), json.loads(report.engine), document)

    with ThreadPoolExecutor(workers) as pool:
        for point, future in [(point, pool.submit(one, point)) for point in todo]:
            try:
                run = future.result()
            except (RuntimeError, ConfigError) as error:
                failures.append({**asdict(point), "error": str(error)})
                console.print(f"{point.series:<16} {point.label:<20} [bold red]{error}[/]", highlight=False)
                continue
            if run is not None:
                runs.append(run)
                console.print(_line(run), highlight=False, soft_wrap=True)
    return runs, failures


def _line(run: Run) -> str:
    result = run.result
    lateness = format_duration(result.lateness_ns.p99, 3) if result.lateness_ns else "-"
    wrong = f"  [bold red]{result.verify_errors} WRONG[/]" if result.verify_errors else ""
    return (
        f"{run.point.series:<16} {run.point.label:<20} {result.iops / 1e6:8.3f} MIOPS "
        f"{format_duration(run.engine['latency_mean_ns'], 3):>9}  lateness p99 {lateness:>8}  "
        f"{result.verdict_text}{wrong}  [dim]{result.verdict_cause}[/]"
    )


def _media_limits(chosen: Backend, sizes: Sizes) -> dict[str, dict[str, float]]:
    """What the way to the media carries when nothing else is done, by size of the pieces; nothing without a GPU."""
    if not chosen.on_gpu:
        return {}
    evaluation = core_module().gpu_open_evaluation(chosen.name)
    return {
        media: {str(size): evaluation.media_limit(media, held, size) for size in (*_BLOCKS, 65536)}
        for media, held in (("host", sizes.host_media_bytes), ("device", sizes.media_bytes))
    }


def _as_point(run: Run, limits: dict[str, dict[str, float]]) -> dict[str, Any]:
    """A point of the document; bandwidth_share is of what copies alone reach, null where that is not known."""
    share = bandwidth_share(run, limits)
    return {**asdict(run.point), "engine": run.engine, "bandwidth_share": share, "result": run.document}


def bandwidth_share(run: Run, limits: dict[str, dict[str, float]]) -> float | None:
    """Of the most that the way to this run's media carries, whatever the size of the pieces."""
    by_size = limits.get(run.engine["media"])
    return run.result.bw_bytes / max(by_size.values()) if by_size else None


def _find(runs: Sequence[Run], series: str, x: float) -> Run | None:
    return next((run for run in runs if run.point.series == series and run.point.x == x), None)


def bars_of(runs: Sequence[Run], limits: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """What was to be shown on a GPU, and whether these runs show it; `limits` as copies alone reach, by size."""
    found: list[dict[str, Any]] = []

    def bar(what: str, got: float | None, wanted: float, *, at_most: bool = False) -> None:
        met = got is not None and (got <= wanted if at_most else got >= wanted)
        found.append({"what": what, "wanted": wanted, "at_most": at_most, "got": got, "met": met})

    def iops(series: str, x: float) -> float | None:
        run = _find(runs, series, x)
        return None if run is None else run.result.iops

    def error(run: Run | None) -> float | None:
        return None if run is None else abs(run.result.iops / run.point.options["iops"] - 1)

    bar("host media, 40 M target: share off", error(_find(runs, "targets-host", 40.0)), 0.01, at_most=True)
    for size in (512, 4096):
        run = _find(runs, "block-sizes", size)
        bound = limits.get("host", {}).get(str(size))
        share = run.result.bw_bytes / bound if run and bound else None
        bar(f"host media, unlimited, {size} B: share of copies alone", share, 0.85)
    bar("GPU memory, unlimited: IOPS", iops("targets-device", UNLIMITED / 1e6), 200e6)
    for run in runs:
        if run.point.series == "targets-device" and run.point.x <= 100:
            bar(f"GPU memory, {run.point.label}: share off", error(run), 0.01, at_most=True)
        if run.point.series == "threads" and run.point.x <= 1 << 18:
            bar(f"2.47 M, {run.point.label}: IOPS share off", error(run), 0.01, at_most=True)
            expected = max(DRIVE_LATENCY_NS, 1e9 * run.engine["threads_at_once"] / DRIVE_IOPS)
            off = abs(run.engine["latency_mean_ns"] / expected - 1)
            bar(f"2.47 M, {run.point.label}: mean latency share off", off, 0.03, at_most=True)
    most, usual = iops("queues", 4096), iops("queues", 256)
    bar("4,096 queues of 256 queues' IOPS", most / usual if most and usual else None, 0.95)
    bar("statistics' share of IOPS", statistics_cost(runs), 0.02, at_most=True)
    return found


def statistics_cost(runs: Sequence[Run]) -> float | None:
    """The share of the rate that keeping the account takes."""
    kept, off = _find(runs, "statistics", 1), _find(runs, "statistics", 0)
    return 1 - kept.result.iops / off.result.iops if kept and off and off.result.iops else None


def _conclude(
    document: dict[str, Any],
    runs: Sequence[Run],
    limits: dict[str, dict[str, float]],
    out: Path,
    chosen: Backend,
    console: Console,
) -> bool:
    for media, by_size in limits.items():
        console.print(f"most that {media} media give: {max(by_size.values()) / 1e9:.1f} GB/s", highlight=False)
        shares = [(bandwidth_share(run, limits) or 0.0, run) for run in runs if run.engine["media"] == media]
        if not shares:
            continue
        share, best = max(shares, key=lambda pair: pair[0])
        console.print(f"  {100 * share:.1f} % of it by {best.point.series}, {best.point.label}", highlight=False)
    cost = statistics_cost(runs)
    if cost is not None and not chosen.is_stand_in:
        what = "" if chosen.on_gpu else " (as the fibres' clock counts operations)"
        console.print(f"statistics take {100 * cost:.1f} % of the rate{what}", highlight=False)
    for bar in document["bars"]:
        state = "[green]met[/]" if bar["met"] else "[bold red]NOT MET[/]"
        got = "none" if bar["got"] is None else f"{bar['got']:.4g}"
        console.print(f"{bar['what']:<48} {got:>10} (bar {bar['wanted']:.4g})  {state}", highlight=False)
    written = [out / "gpu-figures.json", *_draw(runs, limits, out, chosen)]
    checked = sum(run.result.verified for run in runs)
    right = bool(runs) and not document["failed"] and all(_is_right(run) for run in runs)
    verdict = "all data are right" if right else "[bold red]NOT ALL IS RIGHT[/]"
    left = f", {document['left_out']} left out" if document["left_out"] else ""
    console.print(
        f"{len(runs)} runs{left} in {document['wall_seconds']:.0f} s, {checked:,} blocks checked, {verdict}",
        highlight=False,
    )
    console.print(f"written: {', '.join(str(path) for path in written)}", highlight=False, soft_wrap=True)
    return right


def _is_right(run: Run) -> bool:
    return run.result.verified > 0 and run.result.verify_errors == 0 and not run.result.errors


def _draw(runs: Sequence[Run], limits: dict[str, dict[str, float]], out: Path, chosen: Backend) -> list[Path]:
    if not runs:
        return []
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        return []
    from flashmob.gpu.evaluation_figures import draw_evaluation

    note = f"{chosen.device}, backend {chosen.name}, {chosen.clock} time"
    if chosen.simulated:
        note += f"; {chosen.simulated}"
    path = out / "gpu-figures.png"
    draw_evaluation(runs, limits, path, note)
    return [path]
