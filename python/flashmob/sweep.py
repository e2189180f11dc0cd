"""One command that reproduces the shape of SwarmIO's figures 5, 10, 11 and 12, in virtual time.

Results go to sweep.jsonl as they come, so that an interrupted sweep goes on where it was; the figure beside it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
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

# So many points are named where something is wrong with them.
_NAMED = 10
# How long the end of the pool is waited for once its workers are ended.
_POOL_END_S = 2.0


def run_point(point: Point) -> str:
    """Runs one point; the result's JSON on one line."""
    from flashmob.runner import bench

    return bench("d7-ps1010", **point.options()).to_json(indent=None)


def run_sweep(out: Path, *, jobs: int | None, quick: bool, console: Console, fresh: bool = False) -> bool:
    """Runs all points, `jobs` at a time, and writes sweep.jsonl, sweep.svg and sweep.png into `out`.

    Each result is written when it is there, and those that an earlier sweep left are kept, unless `fresh`. Ctrl-C
    therefore loses the runs that are under way, and no more. What is INVALID or was cut short is run again, and stays
    until there is another result in its place.

    Returns:
        Whether all points are there; False after Ctrl-C.

    Raises:
        ConfigError: before the first run, if `out` cannot be written or holds a sweep.jsonl that is something else.
    """
    check_folder(out, "--out")
    path = check_file(out / "sweep.jsonl", "--out")
    todo = points(quick)
    results, others, wrong = ({}, [], {}) if fresh else _kept(path, todo)
    write_lines(path, results, [*others, *wrong.values()])
    if results:
        console.print(f"{len(results)} of {len(todo)} runs are in {path} already", highlight=False, soft_wrap=True)
    if wrong:
        words = f"{_runs(wrong)} there {'is' if len(wrong) == 1 else 'are'} INVALID or cut short, and run again"
        console.print(words, highlight=False, soft_wrap=True)
    if not drawable():
        console.print("No figures will be drawn, because matplotlib is missing: pip install matplotlib")
    kept = len(results)
    started_s = time.monotonic()
    workers = jobs or len(os.sched_getaffinity(0))
    finished = _run([point for point in todo if point not in results], workers, path, results, console)
    elapsed_s = time.monotonic() - started_s
    write_lines(path, results, [*others, *(line for point, line in wrong.items() if point not in results)])
    said = doubts(results)
    if not finished:
        # The pool's semaphores, of which Python would complain once the signal has ended the process, go with it.
        gc.collect()
        words = f"stopped: {len(results)} of {len(todo)} runs are in {path}; the same command goes on from there"
        for sentence in (words, *said):
            console.print(sentence, highlight=False, soft_wrap=True)
        return False
    if len(results) > kept:
        simulated = sum(result.ios for result in list(results.values())[kept:])
        rate = format_rate(simulated / max(elapsed_s, 1e-9), " requests/s")
        words = f"{len(results) - kept} runs, {simulated:,} requests in {elapsed_s:.0f} s ({rate})"
        console.print(words, highlight=False)
    for words in said:
        console.print(words, highlight=False, soft_wrap=True)
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
        before = set(threading.enumerate())
        with _ctrl_c_waits():
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
                # The pool's own hold its semaphores; one that waits for what a worker had half said is left behind.
                for thread in set(threading.enumerate()) - before:
                    thread.join(_POOL_END_S)
    return all(point in results for point in todo)


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Workers that start meanwhile inherit it: they could not ignore Ctrl-C before their interpreter is there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ignore_ctrl_c() -> None:
    """Ctrl-C is for the process that started this one; it ends us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


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


def _runs(chosen: Collection[Point]) -> str:
    return f"{len(chosen)} run{'' if len(chosen) == 1 else 's'}"


def _more(chosen: Sequence[Point]) -> str:
    """The rest of a list that would be too long to read; sweep.jsonl has each verdict."""
    return f"; and {len(chosen) - _NAMED} more" if len(chosen) > _NAMED else ""


def _kept(path: Path, todo: Sequence[Point]) -> tuple[dict[Point, Result], list[str], dict[Point, str]]:
    """What an earlier sweep left: results of the points to run, the lines of others, which stay, and of points to redo.

    A last line that was cut off is left out, and so are results that are INVALID or of runs that were cut short.
    """
    kept: dict[Point, Result] = {}
    others: list[str] = []
    wrong: dict[Point, str] = {}
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
        point = next((point for point in todo if point not in kept and point.asked(result)), None)
        if point is None:
            others.append(line)
        elif result.verdict == "INVALID" or not point.same(result):
            wrong[point] = line
        else:
            kept[point] = result
    # A file that was put together of several may hold a good run of the same point, too.
    return kept, others, {point: line for point, line in wrong.items() if point not in kept}


def write_lines(path: Path, results: dict[Point, Result], others: Sequence[str] = ()) -> None:
    """One result per line, in an order that does not depend on which run ended first."""
    ordered = sorted(results, key=lambda point: (point.queues, point.target_iops, point.requesters))
    lines = [*(json.dumps(results[point].to_dict()) for point in ordered), *others]
    write_text(path, "".join(line + "\n" for line in lines))
