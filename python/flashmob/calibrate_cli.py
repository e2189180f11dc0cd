"""flashmob calibrate: a profile from what a drive was measured to do, or how far a profile is from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from flashmob.cli_options import counting, option, with_unit
from flashmob.errors import EXIT_INTERRUPTED, ConfigError
from flashmob.outputs import check_file, check_other, write_text
from flashmob.units import parse_share

if TYPE_CHECKING:
    from flashmob.calibration.judge import Judged
    from flashmob.calibration.live import Live

_FIT, _CHOICE, _LIVE = "What is fitted", "Which rows", "What is measured"
_LIKE = {"simple": "d7-ps1010", "nand": "980-pro"}
_MOST_HELD_OUT = 0.9


def calibrate(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Tables (CSV), fio's JSON files, or what is to be measured: a block device, live:FILE, vfio-user:PATH "
            "or nvme-tcp:ADDR:PORT/NQN.",
        ),
    ],
    output: Annotated[Path | None, option(None, "FILE", "The profile to write.", "--output", "-o")] = None,
    check: Annotated[str | None, option(None, "PROFILE", "Fit nothing: print the errors of this profile.")] = None,
    model: Annotated[Literal["simple", "nand"], option(_FIT, None, "A rate and a latency, or NAND.")] = "simple",
    like: Annotated[str | None, option(_FIT, "PROFILE", "What the data do not say is as here.")] = None,
    hold_out: Annotated[str, option(_FIT, "SHARE", "Points kept out of the fit, to judge it by.")] = "0.3",
    seed: Annotated[int, option(_FIT, "N", "Draws those points.")] = 1,
    only: Annotated[list[str] | None, option(_CHOICE, "COLUMN=TEXT", "Rows that hold it. Repeatable.")] = None,
    without: Annotated[list[str] | None, option(_CHOICE, "COLUMN=TEXT", "Not rows that hold it.")] = None,
    runtime: Annotated[str | None, option(_LIVE, "TIME", "Measured time of each load; 2s.")] = None,
    allow_writes: Annotated[
        bool, option(_LIVE, None, "Measure writes, too: what is there is lost.", "--allow-writes")
    ] = False,
    out: Annotated[Path | None, option(_LIVE, "FOLDER", "What was measured; out/calibrate/ and a name.")] = None,
    figure: Annotated[Path | None, option(None, "FILE", "Draw modelled over measured (.svg, .png).")] = None,
    jobs: Annotated[int | None, counting(None, "Simulations at once; all cores.", least=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Fits a profile to measurements of a drive, and says how far it is from those that it did not see."""
    from flashmob.calibration.command import calibrate as fitted
    from flashmob.calibration.command import check as checked
    from flashmob.calibration.command import check_to_dict, profile_text
    from flashmob.calibration.live import is_live
    from flashmob.calibration.sources import Filter, read_sources

    _check_options(output, check, like)
    share = _share(hold_out)
    tables = [Path(source) for source in sources if not is_live(source)]
    _check_outputs(output, figure, tables)
    filters = [Filter.parse(text, keep=True) for text in only or []]
    filters += [Filter.parse(text, keep=False) for text in without or []]
    console = Console(stderr=as_json)
    paths = [*tables, *_measured(sources, _live(sources, runtime, allow_writes, out), out, console)]
    found = read_sources(paths, filters)
    if check is not None:
        judged = checked(found, profile=check, jobs=jobs)
        _show(console, judged, found.left_out, None if not as_json else check_to_dict(judged, found))
        _draw(judged, figure, check)
        return
    with console.status("calibrating") as status:
        outcome = fitted(
            found,
            name=(output.stem if output is not None else "calibrated"),
            like=like or _LIKE[model],
            model=model,
            hold_out=share,
            seed=seed,
            jobs=jobs,
            sources=paths,
            say=lambda stage: status.update(f"calibrating: {stage}"),
        )
    if output is not None:
        write_text(output, profile_text(outcome))
    if not as_json:
        from flashmob.calibration.report import parameter_lines

        for line in parameter_lines(outcome.fit.parameters):
            console.print(line, soft_wrap=True, highlight=False)
    _show(console, outcome.judged, found.left_out, None if not as_json else outcome.to_dict())
    _draw(outcome.judged, figure, outcome.profile.name)
    if output is not None:
        console.print(f"profile in {output}", soft_wrap=True, highlight=False)
    elif not as_json:
        console.print("-o FILE writes the profile", highlight=False)


def _live(sources: list[str], runtime: str | None, allow_writes: bool, out: Path | None) -> Live | None:
    """How live sources are measured; None where there is none."""
    from flashmob.calibration.live import Live, is_live

    live = [source for source in sources if is_live(source)]
    if not live:
        options = {"--runtime": runtime is not None, "--allow-writes": allow_writes, "--out": out is not None}
        for name, given in options.items():
            if given:
                raise ConfigError(f"{name} is for what is measured, and there are files alone; leave it out")
        return None
    if out is not None and len(live) > 1:
        raise ConfigError(f"--out {out} is for one source that is measured, and there are {len(live)}; leave it out")
    runtime_ns = with_unit("--runtime", runtime or "2s")
    if not runtime_ns:
        raise ConfigError(f"--runtime {runtime} is not possible: use a time above 0")
    if allow_writes and sys.stdin.isatty():
        typer.confirm(f"What is in {', '.join(live)} will be lost. Go on?", abort=True, err=True)
    return Live(runtime_ns, writes=allow_writes)


def _measured(sources: list[str], how: Live | None, out: Path | None, console: Console) -> list[Path]:
    """Tables of those sources that are to be measured."""
    from flashmob.calibration.live import is_live, measure_live
    from flashmob.study import StoppedError

    if how is None:
        return []
    try:
        tables = [measure_live(one, how, folder=out, console=console) for one in sources if is_live(one)]
    except StoppedError:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    for table in tables:
        console.print(f"measured: {table}", soft_wrap=True, highlight=False)
    return tables


def _share(hold_out: str) -> float:
    try:
        share = parse_share(hold_out)
    except ValueError as error:
        raise ConfigError(f"--hold-out {hold_out} is not possible: {error}") from None
    if share > _MOST_HELD_OUT:
        raise ConfigError(f"--hold-out {hold_out} leaves too little to fit to; use 0 to {_MOST_HELD_OUT}")
    return share


def _check_options(output: Path | None, check: str | None, like: str | None) -> None:
    if check is not None and (output is not None or like is not None):
        option_ = "-o" if output is not None else "--like"
        raise ConfigError(f"{option_} is for a fit, and --check fits nothing; leave one of them out")


def _check_outputs(output: Path | None, figure: Path | None, sources: list[Path]) -> None:
    inputs = {f"source {path}": path for path in sources}
    if output is not None:
        if output.suffix != ".toml":
            raise ConfigError(f"-o {output} is not a profile's name; use one that ends in .toml")
        check_other(output, "-o", inputs)
        check_file(output, "-o")
    if figure is not None:
        from flashmob.figure import check_format

        check_format(figure)
        check_other(figure, "--figure", inputs)
        check_file(figure, "--figure")


def _show(console: Console, judged: list[Judged], left_out: dict[str, int], document: Any | None) -> None:
    if document is not None:
        print(json.dumps(document, indent=2))
        return
    from flashmob.calibration.report import error_lines, left_out_lines

    for line in (*error_lines(judged), *left_out_lines(left_out)):
        console.print(line, soft_wrap=True, highlight=False)


def _draw(judged: list[Judged], path: Path | None, name: str) -> None:
    if path is not None:
        from flashmob.calibration.report import draw

        draw(judged, path, f"{name}: modelled over measured")
