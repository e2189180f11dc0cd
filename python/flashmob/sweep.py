"""One command that reproduces the shape of SwarmIO's figures 5, 10, 11 and 12, in virtual time.

Results go to sweep.jsonl as they come, so that an interrupted sweep goes on where it was; the figure beside it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import active_children, get_context
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from flashmob.errors import ConfigError
from flashmob.figure import drawable
from flashmob.outputs import check_file, check_folder, write_text
from flashmob.result import Result
from flashmob.runner import CtrlC
from flashmob.sweep_figure import draw_sweep
from flashmob.sweep_points import Point, points
from flashmob.units import format_rate


def run_point(point: Point) -> str:
    """Runs one point; the result's JSON on one line."""
    from flashmob.runner import bench

    return bench("d7-ps1010", **point.options()).to_json(indent=None)


def run_sweep(out: Path, *, jobs: int | None, quick: bool, console: Console, fresh: bool = False) -> bool:
    """Runs all points, `jobs` at a time, and writes sweep.jsonl, sweep.svg and sweep.png into `out`.

    Each result is written when it is there, and those that an earlier sweep left are kept, unless `fresh`. Ctrl-C
    therefore loses the runs that are under way, and no more.

    Returns:
        Whether all points are there; False after Ctrl-C.

    Raises:
        ConfigError: before the first run, if `out` cannot be written or holds a sweep.jsonl that is something else.
    """
    check_folder(out, "--out")
    path = check_file(out / "sweep.jsonl", "--out")
    todo = points(quick)
    results, others = ({}, []) if fresh else _kept(path, todo)
    write_lines(path, results, others)
    if results:
        console.print(f"{len(results)} of {len(todo)} runs are in {path} already", highlight=False, soft_wrap=True)
    if not drawable():
        console.print("No figures will be drawn, because matplotlib is missing: pip install matplotlib")
    kept = len(results)
    started_s = time.monotonic()
    workers = jobs or len(os.sched_getaffinity(0))
    finished = _run([point for point in todo if point not in results], workers, path, results, console)
    elapsed_s = time.monotonic() - started_s
    write_lines(path, results, others)
    if not finished:
        words = f"stopped: {len(results)} of {len(todo)} runs are in {path}; the same command goes on from there"
        console.print(words, highlight=False, soft_wrap=True)
        return False
    if len(results) > kept:
        simulated = sum(result.ios for result in list(results.values())[kept:])
        rate = format_rate(simulated / max(elapsed_s, 1e-9), " requests/s")
        words = f"{len(results) - kept} runs, {simulated:,} requests in {elapsed_s:.0f} s ({rate})"
        console.print(words, highlight=False)
    console.print(f"results in {path}", highlight=False, soft_wrap=True)
    for name in ("sweep.svg", "sweep.png") if drawable() else ():
        draw_sweep(results, out / name)
        console.print(f"figure  in {out / name}", highlight=False, soft_wrap=True)
    return True


def _run(todo: list[Point], workers: int, path: Path, results: dict[Point, Result], console: Console) -> bool:
    """Runs points in processes of their own and appends each result to the file; says whether all are there."""
    columns = (TextColumn("virtual runs"), BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn())
    total = sum(point.work for point in todo)
    progress = Progress(*columns, console=console, disable=not console.is_terminal)
    task = progress.add_task("", total=total, text=f"0 of {len(todo)}")
    meter = _Meter(len(todo), total)
    with (
        CtrlC() as ctrl_c,
        path.open("a", encoding="utf-8") as lines,
        progress,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_ignore_ctrl_c) as pool,
    ):
        pending: dict[Future[str], Point] = {pool.submit(run_point, point): point for point in todo}
        try:
            while pending and not ctrl_c.pressed:
                for future in wait(pending, timeout=0.25, return_when=FIRST_COMPLETED).done:
                    result = Result.from_json(future.result())
                    point = pending.pop(future)
                    if not point.same(result):
                        continue  # Ctrl-C reached this run before it reached us.
                    results[point] = result
                    lines.write(json.dumps(result.to_dict()) + "\n")
                    lines.flush()
                    meter.step(point.work)
                    progress.update(task, advance=point.work, text=meter.text())
                    if not console.is_terminal and meter.due():
                        console.print(meter.text(), highlight=False)
        finally:
            if pending:
                pool.shutdown(wait=False, cancel_futures=True)
                for child in active_children():
                    child.terminate()
    return all(point in results for point in todo)


def _ignore_ctrl_c() -> None:
    """Ctrl-C is for the process that started this one; it ends us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Meter:
    """How much is done and how long the rest will take, by the work that runs mean rather than by their number."""

    def __init__(self, count: int, total: float) -> None:
        self._count, self._total = count, total
        self._steps, self._done = 0, 0.0
        self._started_s = self._said_s = time.monotonic()

    def step(self, work: float) -> None:
        """One run has ended."""
        self._steps += 1
        self._done += work

    def text(self) -> str:
        """Such as: 12 of 106, about 80 s left."""
        left_s = (time.monotonic() - self._started_s) * (self._total - self._done) / max(self._done, 1.0)
        ahead = f"{left_s / 60:.0f} min" if left_s > 100 else f"{left_s:.0f} s"
        return f"{self._steps} of {self._count}, about {ahead} left"

    def due(self) -> bool:
        """Whether it is time for another line where no bar can be drawn."""
        if time.monotonic() - self._said_s < 15:
            return False
        self._said_s = time.monotonic()
        return True


def _kept(path: Path, todo: Sequence[Point]) -> tuple[dict[Point, Result], list[str]]:
    """What an earlier sweep left: results of the points to run, and the lines of others, which stay.

    A last line that was cut off is left out.
    """
    kept: dict[Point, Result] = {}
    others: list[str] = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    for index, line in enumerate(lines, 1):
        try:
            result = Result.from_json(line, f"{path}, line {index}")
        except ConfigError:
            if index == len(lines):
                break
            raise ConfigError(
                f"{path}: line {index} is no result that this flashmob reads; use --fresh to start over, or another "
                "--out"
            ) from None
        point = next((point for point in todo if point not in kept and point.same(result)), None)
        if point is None:
            others.append(line)
        else:
            kept[point] = result
    return kept, others


def write_lines(path: Path, results: dict[Point, Result], others: Sequence[str] = ()) -> None:
    """One result per line, in an order that does not depend on which run ended first."""
    ordered = sorted(results, key=lambda point: (point.queues, point.target_iops, point.requesters))
    lines = [*(json.dumps(results[point].to_dict()) for point in ordered), *others]
    write_text(path, "".join(line + "\n" for line in lines))
