"""flashmob gpu: what runs kernels here, one workload, or all of them with figures."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flashmob.cli_options import counting
from flashmob.cli_options import option as _option
from flashmob.errors import EXIT_WRONG
from flashmob.gpu_options import (
    SERVICES,
    access_of,
    check_backend,
    check_choice,
    check_range,
    check_ssd,
    typed_errors,
    workload_options,
)
from flashmob.outputs import check_folder, check_result, write_text
from flashmob.process import interruptible
from flashmob.units import format_duration, format_rate
from flashmob.usage import App

if TYPE_CHECKING:
    from flashmob.gpu.bench import GpuResult

app = App(help="Threads of a GPU that do their own I/O; on the CPU where there is no GPU.", no_args_is_help=True)

_WORKLOAD, _ACCESS, _ATTACH, _OUTPUT = "Workload", "Access to data", "SSDs and GPU", "Output"


Backend = Annotated[str, _option(_ATTACH, "KIND", "auto, cuda, fibres (virtual time) or threads (real time).")]
Clock = Annotated[str, _option(_ATTACH, "KIND", "auto, virtual or real.")]


@app.command()
def info(backend: Backend = "auto", clock: Clock = "auto") -> None:
    """Says what would run kernels here, and why."""
    from flashmob.gpu.device import backend as choose

    check_backend(backend, clock)
    chosen = choose(backend, clock)
    grid = Table.grid(padding=(0, 3))
    grid.add_column(style="bold")
    grid.add_column()
    for name, value in (
        ("backend", chosen.name),
        ("device", chosen.device),
        ("clock", chosen.clock),
        ("why", chosen.reason),
    ):
        grid.add_row(name, value)
    Console().print(grid)


@app.command()
def run(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="mean, bfs, spmv, pagerank, dlrm, ctc or random-io.")
    ],
    profile: Annotated[
        str,
        typer.Argument(
            metavar="[PROFILE]",
            help="The SSDs: a packaged profile's name, a .toml file, or gpu-socket:PATH of `flashmob gpu serve`.",
        ),
    ] = "d7-ps1010",
    set_: Annotated[
        list[str] | None,
        _option(_WORKLOAD, "KEY=VALUE", "An option of the workload: scale=12, batch=64. Repeatable.", "--set"),
    ] = None,
    access: Annotated[
        str | None, _option(_ACCESS, "KIND", "plain, cached, uncached or share_table. \\[default: cached]")
    ] = None,
    policy: Annotated[
        str | None, _option(_ACCESS, "KIND", "direct, lru, clock, fifo or s3fifo. \\[default: clock]")
    ] = None,
    cache: Annotated[str | None, _option(_ACCESS, "BYTES", "Size of the software cache. \\[default: 1M]")] = None,
    line: Annotated[str | None, _option(_ACCESS, "BYTES", "Size of its lines. \\[default: 4096]")] = None,
    threads: Annotated[int | None, counting(_ACCESS, "Threads of each kernel. \\[default: 256]")] = None,
    ssds: Annotated[int, counting(_ATTACH, "How many of them.")] = 1,
    size: Annotated[str | None, _option(_ATTACH, "BYTES", "Size of each. \\[default: 256M]")] = None,
    queues: Annotated[int, counting(_ATTACH, "I/O queue pairs on each.")] = 4,
    depth: Annotated[int, counting(_ATTACH, "Entries of each queue.")] = 256,
    backend: Backend = "auto",
    clock: Clock = "auto",
    service: Annotated[str, _option(_ATTACH, "KIND", "Who takes completions in: kernel, host or callers.")] = "kernel",
    engine: Annotated[
        str | None, _option(_ATTACH, "KIND", "Who serves the SSDs' queues, host or gpu. \\[default: the profile's]")
    ] = None,
    sms: Annotated[
        int | None, counting(_ATTACH, "GPU engine: multiprocessors of each SSD. \\[default: the profile's]")
    ] = None,
    seed: Annotated[int, counting(_ATTACH, "Equal seeds, equal virtual runs.")] = 1,
    json: Annotated[str | None, _option(_OUTPUT, "FILE", "Write the result; - for standard output.")] = None,
) -> None:
    """Runs one workload and compares its outcome with a plain computation on the CPU.

    The workload's data overwrite the emulated SSDs.
    """
    typed = locals()
    from flashmob.gpu.bench import run_workload
    from flashmob.gpu.device import SOCKET, attach

    options = workload_options(workload, set_ or [])
    given = {"access": access, "policy": policy, "cache": cache, "line": line, "threads": threads}
    how = access_of(workload, given)
    _check_attach(typed)
    if not profile.startswith(SOCKET):
        check_ssd(profile, size=size, engine=engine, sms=sms)
    check_result(json, "--json")
    console = Console(stderr=json == "-")

    def work() -> GpuResult:
        with (
            typed_errors(typed, set_ or []),
            attach(
                *[profile] * ssds,
                backend=backend,
                clock=clock,
                service=service,
                queues=queues,
                queue_depth=depth,
                size=size if size is not None or profile.startswith(SOCKET) else "256M",
                engine=engine,
                sms=sms,
                seed=seed,
            ) as gpu,
        ):
            console.print(f"[dim]{gpu.backend.reason}[/]", highlight=False, soft_wrap=True)
            return run_workload(
                gpu,
                workload,
                access=how,
                command=shlex.join(["flashmob", *sys.argv[1:]]),
                options=options,
            )

    result = interruptible(work)
    # The result is kept before anything is shown, as flashmob bench does.
    if json == "-":
        print(result.to_json(), flush=True)
    elif json is not None:
        write_text(json, result.to_json() + "\n")
    console.print(_report(result.outcome, workload))
    if not result.verified:
        raise typer.Exit(EXIT_WRONG)


def _check_attach(typed: Mapping[str, Any]) -> None:
    """Refuses numbers and words that no attachment can have."""
    ranges = {"ssds": (1, 16), "queues": (1, 4096), "depth": (2, 65536), "seed": (0, (1 << 64) - 1), "sms": (1, 1024)}
    for name, (least, most) in ranges.items():
        check_range(f"--{name}", typed[name], least, most)
    check_choice("--service", typed["service"], SERVICES)
    check_backend(typed["backend"], typed["clock"])


@app.command()
def serve(
    profile: Annotated[str, typer.Argument(help="The SSD: a packaged profile's name or a .toml file.")],
    socket: Annotated[str, _option(_ATTACH, "PATH", "UNIX socket to serve at.", "--socket")],
    size: Annotated[str | None, _option(_ATTACH, "BYTES", "Size of its first namespace. \\[default: 256M]")] = None,
    media: Annotated[str | None, _option(_ATTACH, "KIND", "memory or cow:PATH (that file, left as it is).")] = None,
    sms: Annotated[int, counting(_ATTACH, "Multiprocessors that the engine takes, 256 queues each.")] = 1,
    gpu_media: Annotated[str, _option(_ATTACH, "PLACE", "Where the bytes lie: host (pinned) or device.")] = "host",
    backend: Annotated[str, _option(_ATTACH, "KIND", "What runs the engine: auto, cuda or fibres.")] = "auto",
) -> None:
    """Serves an SSD whose engine runs on the GPU to other processes, until interrupted.

    They attach by `flashmob gpu run WORKLOAD gpu-socket:PATH`, or flashmob.gpu.attach("gpu-socket:PATH").
    """
    from flashmob.gpu.serve import serve as serve_gpu
    from flashmob.profiles import namespace_overrides

    check_range("--sms", sms, 1, 1024)
    check_ssd(profile, size=size, media=media, engine="gpu", sms=sms)
    check_choice("--gpu-media", gpu_media, ("host", "device"))
    check_choice("--backend", backend, ("auto", "cuda", "fibres"))
    check_backend(backend)
    size = size if size is not None or media is not None else "256M"
    wanted = {**namespace_overrides(size, media), "engine.gpu_media": gpu_media}
    if code := serve_gpu(profile, Path(socket), wanted, sms=sms, backend=backend, console=Console()):
        raise typer.Exit(code)


@app.command()
def check(
    out: Annotated[str, _option(_OUTPUT, "FOLDER", "Where JSON and figures go.")] = "out/gpu",
    backend: Backend = "auto",
    quick: Annotated[bool, _option(_WORKLOAD, None, "Few points: a smoke test.", "--quick")] = False,
    engine: Annotated[str, _option(_ATTACH, "KIND", "Who serves the SSDs' queues, host or gpu.")] = "host",
    sms: Annotated[int, counting(_ATTACH, "GPU engine: multiprocessors of each SSD.")] = 1,
) -> None:
    """Runs every workload with data checks and draws what came out; make gpu-check runs the tests besides."""
    from flashmob.gpu.check import run_check

    check_backend(backend)
    check_choice("--engine", engine, ("host", "gpu"))
    check_range("--sms", sms, 1, 1024)
    check_folder(out, "--out")
    command = shlex.join(["flashmob", *sys.argv[1:]])
    console = Console()
    served_by = (engine, sms if engine == "gpu" else None)
    if not interruptible(
        lambda: run_check(Path(out), backend, served_by, quick=quick, console=console, command=command)
    ):
        raise typer.Exit(EXIT_WRONG)


@app.command()
def figures(
    out: Annotated[str, _option(_OUTPUT, "FOLDER", "Where JSON and figure go.")] = "out/gpu-figures",
    backend: Backend = "auto",
    quick: Annotated[bool, _option(_WORKLOAD, None, "Few points, very small: a smoke test.", "--quick")] = False,
) -> None:
    """Evaluates the SSD whose engine runs on the GPU: threads, targets, queues, block sizes, ablation; with figures.

    Without a GPU the sweeps run small in virtual time, which shows no speed.
    """
    from flashmob.gpu.evaluation import run_figures

    check_backend(backend)
    check_folder(out, "--out")
    command = shlex.join(["flashmob", *sys.argv[1:]])
    console = Console()
    if not interruptible(
        lambda: run_figures(Path(out), backend_name=backend, quick=quick, console=console, command=command)
    ):
        raise typer.Exit(EXIT_WRONG)


def _report(outcome: dict[str, Any], workload: str) -> Table:
    grid = Table.grid(padding=(0, 3))
    grid.add_column(style="bold")
    grid.add_column()
    grid.add_row("workload", f"{workload}, {outcome['backend']}")
    grid.add_row("kernels took", format_duration(outcome["duration_ns"], 3))
    grid.add_row("commands", f"{outcome['commands']:,}")
    cache = outcome["cache"]
    accesses = cache["hits"] + cache["misses"]
    if accesses:
        rate = 100 * cache["hits"] / accesses
        grid.add_row("cache", f"{rate:.1f} % of {accesses:,} hit, {cache['evictions']:,} evictions")
    if outcome.get("iops"):
        grid.add_row("rate", f"{format_rate(outcome['iops'])}, {outcome['bytes_per_s'] / 1e9:.3f} GB/s")
    if outcome.get("peak_speedup"):
        grid.add_row(
            "overlap",
            f"{outcome['peak_speedup']:.2f} x at its peak, {100 * outcome['worst_deviation']:.1f} % off the ideal",
        )
    if outcome["verified"]:
        grid.add_row("verified", Text("every result is that of a plain computation on the CPU", style="green"))
    else:
        wrong = f"{outcome['mismatches']:,} results are wrong, {outcome['io_errors']:,} accesses failed"
        grid.add_row("verified", Text(wrong, style="bold red"))
    return grid
