"""One command that reproduces the shape of SwarmIO's figures 5, 10, 11 and 12, in virtual time.

It is a study: each result is a file as soon as it is there, so that an interrupted sweep goes on where it was. The
figure, and sweep.jsonl with a result in each line, stand beside.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from flashmob.errors import ConfigError
from flashmob.figure import drawable
from flashmob.outputs import check_folder, write_text
from flashmob.result import Result
from flashmob.study import Settings, StoppedError, Study, key
from flashmob.sweep_figure import draw_sweep
from flashmob.sweep_points import Point, points
from flashmob.units import format_rate

# So many points are named where something is wrong with them.
_NAMED = 10


def run_point(settings: Settings) -> dict[str, Any]:
    """Runs one point; the result's document.

    Raises:
        StoppedError: if it was cut short.
    """
    from flashmob.runner import bench

    result = bench("d7-ps1010", **settings)
    if result.cancelled:
        raise StoppedError
    return result.to_dict()


def run_sweep(out: Path, *, jobs: int | None, quick: bool, console: Console, fresh: bool = False) -> bool:
    """Runs all points, `jobs` at a time, and writes sweep.jsonl, sweep.svg and sweep.png into `out`.

    Results that an earlier sweep left are kept, unless `fresh`. Ctrl-C loses the runs that are under way, and no more.
    What is INVALID or was cut short is run again, and stays until there is another result in its place.

    Returns:
        Whether all points are there; False after Ctrl-C.

    Raises:
        ConfigError: before the first run, if `out` cannot be written or holds a sweep.jsonl that is something else.
    """
    path = check_folder(out, "--out") / "sweep.jsonl"
    if path.exists() and not (out / "points").is_dir():
        raise ConfigError(f"--out {out} has a sweep.jsonl that no sweep made, and it would be lost; use another")
    if not drawable():
        console.print("No figures will be drawn, because matplotlib is missing: pip install matplotlib")
    wanted = {key(point.options()): point for point in points(quick)}
    study = Study(
        "sweep",
        [point.options() for point in wanted.values()],
        run_point,
        work=lambda settings: wanted[key(settings)].work,
        is_done=_is_good,
        jobs=jobs or len(os.sched_getaffinity(0)),
        label=lambda settings: str(wanted[key(settings)]),
    )
    started_s = time.monotonic()
    table = study.run(out, console=console, fresh=fresh)
    elapsed_s = time.monotonic() - started_s
    results = {wanted[key(trial.settings)]: Result.from_dict(document) for trial, document in table.measured}
    write_lines(path, results)
    said = doubts(results)
    if not table.is_whole:
        # The pool's semaphores, of which Python would complain once the signal has ended the process, go with it.
        gc.collect()
    elif table.new:
        simulated = sum(document["ios"] for document in table.new)
        rate = format_rate(simulated / max(elapsed_s, 1e-9), " requests/s")
        console.print(f"{_runs(table.new)}, {simulated:,} requests in {elapsed_s:.0f} s ({rate})", highlight=False)
    for words in said:
        console.print(words, highlight=False, soft_wrap=True)
    if not table.is_whole:
        return False
    console.print(f"results in {path}", highlight=False, soft_wrap=True)
    for name in ("sweep.svg", "sweep.png") if drawable() else ():
        draw_sweep(results, out / name)
        console.print(f"figure  in {out / name}", highlight=False, soft_wrap=True)
    return True


def _is_good(document: dict[str, Any]) -> bool:
    """Whether a result of an earlier sweep stands: it is of a whole run, and not INVALID."""
    result = Result.from_dict(document)
    whole = result.ios >= result.options["ios"] and not result.cancelled and not result.device_failed
    return whole and result.verdict != "INVALID"


def doubts(results: dict[Point, Result]) -> list[str]:
    """Sentences on the results that are not to be believed, or not wholly; none where all are VALID."""
    invalid = [point for point, result in results.items() if result.verdict == "INVALID"]
    lateness = [point for point, result in results.items() if result.verdict == "VALID (lateness only)"]
    said = []
    if invalid:
        cause = results[invalid[0]].verdict_cause
        said.append(
            f"INVALID, and not to be relied on: {_runs(invalid)} ({'; '.join(map(str, invalid[:_NAMED]))}"
            f"{_more(invalid)}){f'; of the first, {cause}' if cause else ''}; "
            "the same command tries them again (of the same version with the same outcome)"
        )
    if lateness:
        said.append(
            f"VALID (lateness only), and else not judged: {_runs(lateness)} ({'; '.join(map(str, lateness[:_NAMED]))}"
            f"{_more(lateness)})"
        )
    return said


def _runs(chosen: Collection[Any]) -> str:
    return f"{len(chosen)} run{'' if len(chosen) == 1 else 's'}"


def _more(chosen: Sequence[Point]) -> str:
    """The rest of a list that would be too long to read; sweep.jsonl has each verdict."""
    return f"; and {len(chosen) - _NAMED} more" if len(chosen) > _NAMED else ""


def write_lines(path: Path, results: dict[Point, Result]) -> None:
    """One result per line, in an order that does not depend on which run ended first."""
    ordered = sorted(results, key=lambda point: (point.queues, point.target_iops, point.requesters))
    write_text(path, "".join(json.dumps(results[point].to_dict()) + "\n" for point in ordered))
