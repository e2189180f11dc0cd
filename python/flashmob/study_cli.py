"""flashmob study: what can be studied, and the study of interfaces."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from flashmob.cli_options import counting, option, with_unit
from flashmob.errors import EXIT_INTERRUPTED, ConfigError
from flashmob.outputs import check_folder, write_text
from flashmob.units import parse_count, parse_size
from flashmob.usage import App

if TYPE_CHECKING:
    from flashmob.study.interfaces import Plan
    from flashmob.study.power_log import PowerLog
    from flashmob.study.power_model import PowerModel
    from flashmob.study.table import Row, Table

app = App(help="Studies: one measurement at many points, resumable, with a report.", invoke_without_command=True)

_LONGEST_IDLE_NS = 7 * 24 * 3600 * 10**9
# What a report leaves in its folder, beside the points.
_MADE = ("report.md", "report.html", "table.csv", "idle.json")
_LOAD, _COST, _OUTPUT = "Load", "Meters", "Output"
_STUDIES = {
    "interfaces": "ways of doing I/O on a file, a block device or an emulated SSD: rate, latency, CPU time, energy",
}
_DIRECTIONS = ("randread", "randwrite", "read", "write")


@app.callback()
def study(context: typer.Context) -> None:
    """Lists the studies; each is a command of its own, and one of yours is a file of 20 lines (docs/guide/study.md)."""
    if context.invoked_subcommand is not None:
        return
    grid = RichTable.grid(padding=(0, 3))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for name, text in _STUDIES.items():
        grid.add_row(name, text)
    Console().print(grid)


@app.command()
def interfaces(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A file, a block device, a profile, vfio-user:PATH or nvme-tcp:...")
    ],
    interfaces: Annotated[str | None, option(_LOAD, "LIST", "Which ones; all that the target has.")] = None,
    rw: Annotated[str, option(_LOAD, "LIST", "randread, randwrite, read, write.")] = "randread",
    bs: Annotated[str, option(_LOAD, "LIST", "Sizes of requests, such as 4k,16k,128k.")] = "4k",
    depth: Annotated[str, option(_LOAD, "LIST", "Requests under way for each thread.")] = "1",
    threads: Annotated[str, option(_LOAD, "LIST", "Threads.")] = "1",
    buffered: Annotated[bool, option(_LOAD, None, "Through the page cache, as mmap always is.", "--buffered")] = False,
    size: Annotated[str | None, option(_LOAD, "BYTES", "Make TARGET, a file or an emulated SSD, so large.")] = None,
    allow_writes: Annotated[
        bool, option(_LOAD, None, "TARGET may be overwritten, though no study made it.", "--allow-writes")
    ] = False,
    runtime: Annotated[str, option(_LOAD, "TIME", "Measured time of each point.")] = "5s",
    ramp: Annotated[str, option(_LOAD, "TIME", "Time before it.")] = "1s",
    repeats: Annotated[int, counting(_LOAD, "How often each point is measured.", least=1)] = 1,
    seed: Annotated[int, counting(_LOAD, "Draws places and the order of points.", least=0)] = 1,
    idle: Annotated[str, option(_COST, "TIME", "Read meters on the idle machine first.")] = "0s",
    power_log: Annotated[str | None, option(_COST, "FILE", "Watts that a logger wrote down, CSV.")] = None,
    power_offset: Annotated[float, option(_COST, "SECONDS", "How far that logger's clock is behind.")] = 0.0,
    power_model: Annotated[
        str | None, option(_COST, "FILE|NAME", "Calculate joules from CPU time where no meter is: xeon-e3-1230.")
    ] = None,
    out: Annotated[
        str | None, option(_OUTPUT, "FOLDER", "Results and the report; out/interfaces/ and TARGET's name by default.")
    ] = None,
    fresh: Annotated[bool, option(_OUTPUT, None, "Measure again what FOLDER holds.", "--fresh")] = False,
    as_json: Annotated[bool, option(_OUTPUT, None, "Print the table as JSON.", "--json")] = False,
) -> None:
    """Measures the same load by every interface, and says what each costs: in CPU time, and in joules where a meter is.

    Ctrl-C keeps what is done; the same command goes on from there.
    """
    typed = locals()
    from flashmob.study.interfaces import (
        STUDY,
        Plan,
        check_interfaces,
        default_folder,
        is_done,
        seconds_of,
        with_seed_of,
    )
    from flashmob.study.points import trials
    from flashmob.study.power_model import PowerModel
    from flashmob.study.runner import Study
    from flashmob.study.target import study_target

    directions = _list("--rw", rw, _direction)
    axes = {name: _list(f"--{name}", typed[name], parse_count) for name in ("depth", "threads")}
    sizes = _list("--bs", bs, lambda text: parse_size(text, binary=True))
    runtime_ns, ramp_ns = with_unit("--runtime", runtime), with_unit("--ramp", ramp)
    idle_ns = with_unit("--idle", idle)
    assert runtime_ns is not None
    assert ramp_ns is not None
    assert idle_ns is not None
    if idle_ns > _LONGEST_IDLE_NS:
        raise ConfigError(f"--idle {idle} is not possible: use at most 7 days")
    if not math.isfinite(power_offset):
        raise ConfigError(f"--power-offset {power_offset} is not possible: use a number of seconds")
    log = _power_log(power_log, power_offset)
    model = PowerModel.read(power_model) if power_model is not None else None
    chosen = study_target(target, size=size, allow_writes=allow_writes)
    folder = _own_folder(out if out is not None else default_folder(chosen))
    try:
        names = check_interfaces(chosen, _list("--interfaces", interfaces, str) if interfaces else [])
        with chosen.to_check() as checked:
            plan = Plan(
                checked,
                names,
                directions,
                sizes,
                axes["depth"],
                axes["threads"],
                runtime_ns,
                ramp_ns,
                not buffered,
                seed,
            )
            trials(plan.points(), repeats=repeats)
            plan.check()
    except ConfigError as error:
        raise ConfigError(_as_typed(str(error), typed)) from None
    # Only what will be measured is made.
    plan = replace(plan, target=chosen.make())
    console = Console(stderr=as_json)
    still = _idle(plan, folder, idle_ns / 1e9, fresh=fresh)
    study_ = Study(
        STUDY, plan.points(), plan.measure, repeats, seed, work=seconds_of, is_done=is_done, given=with_seed_of
    )
    table = study_.run(folder, console=console, fresh=fresh)
    _report(plan, table, _Energy(still, log, model), folder, console, as_json=as_json)
    if not table.is_whole:
        raise typer.Exit(EXIT_INTERRUPTED)


def _own_folder(out: str) -> Path:
    """A folder for results: one that a study made, or without files of a report's names."""
    folder = Path(out).expanduser()
    if not (folder / "points").is_dir():
        for name in _MADE:
            if (folder / name).exists():
                raise ConfigError(f"--out {out} has a {name} that no study made, and it would be lost; use another")
    return check_folder(out, "--out")


def _list(option_: str, text: str, parse: Callable[[str], Any]) -> list[Any]:
    values = []
    for part in (one.strip() for one in text.split(",")):
        if not part:
            raise ConfigError(f"{option_} {text!r} is not possible: a value is missing beside a comma; leave that out")
        try:
            value = parse(part)
        except ValueError as error:
            raise ConfigError(f"{option_} {part} is not possible: {error}") from None
        if value == 0:
            raise ConfigError(f"{option_} {part} is not possible: use at least 1")
        if value not in values:
            values.append(value)
    return values


# Options of the compiled module, and of the command line.
_OPTIONS = {"block_bytes": "bs", "depth": "depth", "threads": "threads", "runtime_ns": "runtime", "ramp_ns": "ramp"}
_NOT_POSSIBLE = re.compile(rf"^({'|'.join(_OPTIONS)}) = (\S+) is not possible")


def _as_typed(message: str, typed: Mapping[str, Any]) -> str:
    """What the compiled module says of an option, with the name that it has here."""

    def option_(found: re.Match[str]) -> str:
        name = _OPTIONS[found[1]]
        return f"--{name} {typed[name] if found[1].endswith('_ns') else found[2]} is not possible"

    return _NOT_POSSIBLE.sub(option_, message)


def _direction(text: str) -> str:
    if text not in _DIRECTIONS:
        raise ValueError(f"use some of {', '.join(_DIRECTIONS)}")
    return text


def _power_log(path: str | None, offset_s: float) -> PowerLog | None:
    from flashmob.study.power_log import PowerLog

    if path is None:
        if offset_s:
            raise ConfigError(f"--power-offset {offset_s} is for a --power-log, and there is none; leave it out")
        return None
    return PowerLog(path, offset_s)


def _idle(plan: Plan, folder: Path, seconds: float, *, fresh: bool) -> dict[str, Any]:
    """What meters read on the idle machine: measured once, and kept beside the points."""
    from flashmob.study.interfaces import machine_key

    path = folder / "idle.json"
    if not fresh and path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and "window" in found and found.get("machine") == machine_key():
            return found
    if seconds <= 0:
        return {}
    still = plan.idle(seconds)
    write_text(path, json.dumps(still, indent=1) + "\n")
    return still


@dataclass(frozen=True, slots=True)
class _Energy:
    """Where joules come from beside the meters of a plan."""

    still: dict[str, Any]
    log: PowerLog | None
    model: PowerModel | None


def _report(plan: Plan, table: Table, energy: _Energy, folder: Path, console: Console, *, as_json: bool) -> None:
    from flashmob.figure import drawable
    from flashmob.study.interface_figure import draw_interfaces
    from flashmob.study.interfaces import figures
    from flashmob.study.report import findings, paper, summary, write_report
    from flashmob.study.table import write_csv

    meters = [*([energy.log] if energy.log is not None else []), *plan.meters]
    rows = table.rows(lambda result: figures(result, meters, energy.still, energy.model))
    points = summary(rows)
    if rows:
        write_csv(folder / "table.csv", rows)
        drawn = draw_interfaces(points, folder, title=plan.target.name) if drawable() else []
        write_report(folder, points, _facts(plan, table, rows, meters, energy.model), drawn)
    if as_json:
        document = {"study": "interfaces", "is_whole": table.is_whole, "rows": rows, "points": points, "paper": paper()}
        print(json.dumps(document, indent=2))
        return
    _show(console, points)
    for sentence in findings(points):
        console.print(sentence, highlight=False, soft_wrap=True, markup=False)
    if rows:
        console.print(f"report in {folder / 'report.html'}", highlight=False, soft_wrap=True, markup=False)


def _facts(plan: Plan, table: Table, rows: list[Row], meters: list[Any], model: PowerModel | None) -> dict[str, str]:
    """What a reader must know of how it was measured."""
    machines = {
        f"{found['cpu']}, {found['cores']} cores, Linux {found['kernel']}"
        for result in table.results
        if (found := result.get("provenance"))
    }
    sources = sorted({row["energy.source"] for row in rows if "energy.source" in row})
    absent = [f"{one.name}: {one.absent}" for one in meters if one.absent]
    reasons = {
        row["counters"]["absent"]
        for row in table.results
        if isinstance(row.get("counters"), dict) and "absent" in row["counters"]
    }
    return {
        "target": plan.target.name,
        "command": shlex.join(["flashmob", *sys.argv[1:]]),
        "machine": "; ".join(sorted(machines)),
        "each point": f"{plan.runtime_ns / 1e9:g} s after a ramp of {plan.ramp_ns / 1e9:g} s, "
        f"{'direct' if plan.direct else 'buffered'} I/O, order drawn from seed {plan.seed}",
        "energy.source": ", ".join(sources) or "none",
        **({"power model": f"{model.name}: {model.source}"} if model is not None and "model" in sources else {}),
        "meters that are absent": "; ".join([*absent, *(f"perf: {reason}" for reason in sorted(reasons))]),
    }


def _show(console: Console, points: list[Row]) -> None:
    from flashmob.study.report import doubts, not_measured, short_table

    for line in short_table(points, console.width):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    for sentence in not_measured(points):
        console.print(f"not measured: {sentence}", highlight=False, soft_wrap=True, markup=False)
    for sentence in doubts(points):
        console.print(f"not to be relied on: {sentence}", highlight=False, soft_wrap=True, markup=False)
