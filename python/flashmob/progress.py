"""What is seen of a benchmark while it runs: a live line in the terminal, and how Ctrl-C is answered."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from flashmob.runner import CtrlC
from flashmob.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from flashmob import _core
    from flashmob.runner import BenchRun

# Four times a second is lively enough, and does not take the core from a driver or an engine that needs it.
_REFRESH_S = 0.25
# Whoever stops a run waits no longer for the model's figures of what was done.
_PATIENCE_S = 1.0
_BAR_CELLS = 10
_PHASES = {"fill": "filling", "ramp": "ramp", "run": "measuring", "model": "judging", "done": "done"}


def follow(run: BenchRun, console: Console) -> bool:
    """Starts a run and shows its progress until it ends; Ctrl-C cancels it. Whether it ran to its end.

    Where the console is no terminal nothing is drawn.
    """
    with CtrlC() as ctrl_c, run:
        stopped_s = math.inf
        live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else nullcontext()
        watch = FillWatch()
        with live:
            while not run.wait(_REFRESH_S):
                if ctrl_c.pressed and not run.cancelled:
                    judging = run.progress().phase == "model"
                    covers = "goes without the model's figures" if judging else "covers what was done so far"
                    console.print(f"[yellow]stopping; the report {covers} (Ctrl-C again to give up)[/]")
                    run.cancel()
                    stopped_s = time.monotonic()
                elif run.cancelled and time.monotonic() - stopped_s >= _PATIENCE_S:
                    # Where the model is asked, this gives it up; elsewhere it asks for what was asked already.
                    run.cancel()
                if isinstance(live, Live):
                    progress = run.progress()
                    live.update(progress_line(progress, watch.left_s(progress)), refresh=True)
        # Who pressed it in the last moments wants to go, too.
        return not (run.cancelled or ctrl_c.pressed)


class FillWatch:
    """Tells how long filling will still take, from how it went so far."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._first: tuple[float, float] | None = None

    def left_s(self, progress: _core.BenchProgress) -> float | None:
        """Seconds that are left of filling; None while nothing can be said yet, or where nothing is filled."""
        if progress.phase != "fill":
            return None
        now_s, done = self._now_s(), progress.phase_fraction
        if self._first is None:
            self._first = (now_s, done)
        since_s, before = self._first
        if now_s - since_s < 2 * _REFRESH_S or done <= before:
            return None
        return (1 - done) * (now_s - since_s) / (done - before)


def progress_line(progress: _core.BenchProgress, left_s: float | None = None) -> Text:
    """Phase, share done, rate, mean latency and lateness, and errors of a running benchmark; bytes while it fills."""
    done = round(_BAR_CELLS * min(1.0, max(0.0, progress.phase_fraction)))
    line = Text(f"{_PHASES.get(progress.phase, progress.phase):<9} ", style="bold", no_wrap=True)
    if progress.phase == "model":
        # How far this is, nobody knows; the run itself is over.
        line.append("the run is done; measuring what the model gives for the same requests", style="not bold")
    else:
        line.append("━" * done, style="cyan")
        line.append("━" * (_BAR_CELLS - done), style="bright_black")
    if progress.phase == "fill":
        total = getattr(progress, "fill_total_bytes", 0)
        if total:
            filled = getattr(progress, "fill_bytes", 0)
            line.append(f" {format_size(filled):>10} of {format_size(total)}", style="bold cyan")
        if left_s is not None:
            line.append(f"  {_seconds(left_s)} left", style="not bold")
    if progress.phase in ("ramp", "run"):
        line.append(f" {format_rate(progress.iops):>12}", style="bold cyan")
        line.append(f"  mean {format_duration(progress.mean_latency_ns, 3):>7}", style="not bold")
        if progress.mean_lateness_ns >= 0:
            line.append(f"  late {format_duration(progress.mean_lateness_ns, 3):>7}", style="not bold")
        line.append(f" {progress.ios:>13,} I/Os", style="dim")
    if progress.verify_errors:
        line.append(f"  {progress.verify_errors:,} WRONG READS", style="bold red")
    return line


def _seconds(seconds: float) -> str:
    whole = max(1, round(seconds))
    return f"{whole} s" if whole < 120 else f"{whole // 60} min"
