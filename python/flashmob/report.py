"""What a benchmark looks like in the terminal: a live line while it runs, tables when it is done."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from flashmob.result import Result
from flashmob.runner import CtrlC
from flashmob.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from flashmob import _core
    from flashmob.runner import BenchRun

# Four times a second is lively enough, and does not take the core from a driver or an engine that needs it.
_REFRESH_S = 0.25
_BAR_CELLS = 10
VERDICT_STYLES = {"VALID": "bold green", "INVALID": "bold red", "NONE": "bold yellow", "NOT JUDGED": "bold yellow"}
_PHASES = {"fill": "filling", "ramp": "ramp", "run": "measuring", "done": "done"}


def follow(run: BenchRun, console: Console) -> bool:
    """Starts a run and shows its progress until it ends; Ctrl-C cancels it. Whether it ran to its end.

    Where the console is no terminal nothing is drawn.
    """
    with CtrlC() as ctrl_c:
        run.start()
        live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else nullcontext()
        with live:
            while not run.wait(_REFRESH_S):
                if ctrl_c.pressed and not run.cancelled:
                    console.print(
                        "[yellow]stopping; the report covers what was done so far (Ctrl-C again to give up)[/]"
                    )
                    run.cancel()
                if isinstance(live, Live):
                    live.update(progress_line(run.progress()), refresh=True)
    return not run.cancelled


def progress_line(progress: _core.BenchProgress) -> Text:
    """Phase, share done, rate, mean latency and lateness, and errors of a running benchmark."""
    done = round(_BAR_CELLS * min(1.0, max(0.0, progress.phase_fraction)))
    line = Text(f"{_PHASES.get(progress.phase, progress.phase):<9} ", style="bold", no_wrap=True)
    line.append("━" * done, style="cyan")
    line.append("━" * (_BAR_CELLS - done), style="bright_black")
    if progress.phase in ("ramp", "run"):
        line.append(f" {format_rate(progress.iops):>12}", style="bold cyan")
        line.append(f"  mean {format_duration(progress.mean_latency_ns, 3):>7}", style="not bold")
        if progress.mean_lateness_ns >= 0:
            line.append(f"  late {format_duration(progress.mean_lateness_ns, 3):>7}", style="not bold")
        line.append(f" {progress.ios:>13,} I/Os", style="dim")
    if progress.verify_errors:
        line.append(f"  {progress.verify_errors:,} WRONG READS", style="bold red")
    return line


def report(result: Result, *, title: str = "", stopped: bool = False) -> RenderableType:
    """The final report: rates, latencies, fidelity, verification, verdict. `stopped`: the run was cut short."""
    return Panel(
        Group(_figures(result), Text(), _latencies(result), Text(), _fidelity(result, stopped)),
        title=title or f"{result.device.get('profile') or result.jobname} in {result.clock} time",
        title_align="left",
        border_style=VERDICT_STYLES.get(result.verdict, "white").replace("bold ", ""),
        expand=False,
        padding=(1, 2),
    )


def describe_load(result: Result) -> str:
    """One line: what was asked of the device."""
    options = result.options
    what = f"{result.rw} {_bs(result.bs)}".strip()
    if options.get("trace_path"):
        return f"replay of {options['trace_path']}"
    if options.get("rate_iops"):
        return f"{what}, {format_rate(float(options['rate_iops']))} offered on {options.get('queues', '?')} queues"
    if options.get("requesters"):
        return f"{what}, {int(options['requesters']):,} requesters on {options.get('queues', '?')} queues"
    return f"{what}, {options.get('queues', '?')} queues × {options.get('queue_depth', '?')} in flight"


def _bs(bs: object) -> str:
    text = str(bs or "")
    return format_size(int(text)) if text.isascii() and text.isdigit() else text


def _figures(result: Result) -> Table:
    grid = Table.grid(padding=(0, 3))
    grid.add_column(style="bold")
    grid.add_column()
    rate = Text(format_rate(result.iops), style="bold cyan")
    if result.model_iops:
        error = (result.iops - result.model_iops) / result.model_iops
        # Adding zero turns a negative zero, which would print as -0.00 %, into a positive one.
        percent = round(100 * error, 2) + 0.0
        rate.append(f"   the model gives {format_rate(result.model_iops)} ({percent:+.2f} %)", style="not bold dim")
    if not result.data_moved:
        rate.append("   frontend only: no data was moved", style="not bold yellow")
    grid.add_row("load", describe_load(result))
    grid.add_row("rate", rate)
    grid.add_row("bandwidth", f"{result.bw_bytes / 1e9:.3f} GB/s")
    grid.add_row("requests", f"{result.ios:,} ({result.read_ios:,} reads, {result.write_ios:,} writes)")
    grid.add_row("took", f"{result.wall_seconds:.2f} s of wall time")
    return grid


def _latencies(result: Result) -> Table:
    rows = [
        ("latency", result.latency_ns),
        ("target", result.target_ns),
        ("processing", result.processing_ns),
        ("lateness", result.lateness_ns),
        ("  without gaps", result.lateness_no_gaps_ns),
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for heading in ("mean", "p50", "p99", "p99.9", "p99.99", "p99.999", "max"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, figures in rows:
        if figures is None:
            continue
        values = (figures.mean, figures.p50, figures.p99, figures.p999, figures.p9999, figures.p99999, figures.max)
        table.add_row(name, *("" if value is None else format_duration(value, 3) for value in values))
    return table


def _fidelity(result: Result, stopped: bool) -> Table:
    grid = Table.grid(padding=(0, 3))
    grid.add_column(style="bold")
    grid.add_column()
    gaps = result.gaps
    if result.clock == "real" and gaps is not None and result.poll_gap_max_ns is not None:
        longest = (
            f", longest {format_duration(gaps.longest_ns)}, {100 * gaps.share:.2f} % of the time" if gaps.count else ""
        )
        grid.add_row("host gaps", f"{gaps.count:,}{longest}")
        grid.add_row("poll gap", f"{format_duration(result.poll_gap_max_ns)} at most between two looks at a doorbell")
    if result.verified or result.verify_errors:
        style = "bold red" if result.verify_errors else "green"
        line = Text(f"{result.verified:,} reads checked, {result.verify_errors:,} wrong", style=style)
        if result.verify_first_error:
            line.append(f" (first: {result.verify_first_error})")
        grid.add_row("verified", line)
    for status, count in sorted(result.errors.items()):
        grid.add_row("errors", Text(f"{count:,} commands failed with status {status}", style="bold red"))
    if result.unanswered:
        grid.add_row("errors", Text(f"{result.unanswered:,} commands were never answered", style="bold red"))
    for fault in result.faults:
        line = Text(f"{fault['rule']}", style="yellow")
        line.append(f"   hit {fault['injected']:,} of {fault['matched']:,} commands", style="not bold")
        grid.add_row("fault", line)
    if stopped:
        grid.add_row("stopped", Text("before its end; figures cover what was done", style="yellow"))
    verdict = Text(result.verdict, style=VERDICT_STYLES.get(result.verdict, ""))
    if result.verdict_cause:
        verdict.append(f": {result.verdict_cause}", style="not bold")
    grid.add_row("verdict", verdict)
    return grid


def all_right(result: Result) -> bool:
    """Whether every read that was checked was right, and every command was answered and none failed."""
    return result.verify_errors == 0 and result.unanswered == 0 and not any(result.errors.values())
