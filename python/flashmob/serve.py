"""`flashmob serve`: SSDs that other processes and machines attach to, until interrupted, with a live table."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flashmob.device import engine_note
from flashmob.errors import ConfigError
from flashmob.faults import FaultFile
from flashmob.lab import ServedSsd
from flashmob.metrics import JsonLog, MetricsEndpoint, stats_record
from flashmob.models import Profile
from flashmob.options import free_memory_bytes
from flashmob.process import notify_systemd, stop_signals
from flashmob.report import VERDICT_STYLES
from flashmob.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from flashmob import _core

DEFAULT_INTERVAL_S = 1.0


class Running:
    """One SSD that is served."""

    def __init__(self, ssd: ServedSsd, folder: Path | None = None) -> None:
        """Makes the SSD.

        Raises:
            ConfigError: naming the key and the fix.
        """
        self.name = ssd.name
        self.device: Profile
        self.device, self.server = ssd.server(folder)
        self.stats: _core.ServerStats | None = None
        self._fault_file = FaultFile(_beside(folder, ssd.faults_file)) if ssd.faults_file else None

    @property
    def nqn(self) -> str:
        """The subsystem's NQN, which NVMe/TCP hosts connect to."""
        return self.device.subsystem.nqn

    def look_for_faults(self) -> str | None:
        """Takes over the rules of the faults file, if it has changed. What to say of it, or None.

        A file that cannot be read changes nothing: faults are switched while hosts work.
        """
        if self._fault_file is None:
            return None
        try:
            rules = self._fault_file.changed()
            if rules is None:
                return None
            self.server.set_faults(rules)
        except ConfigError as error:
            return str(error)
        return f"{self.name} shows {'; '.join(rules) or 'no faults'}"

    def look(self) -> _core.ServerStats:
        """Takes a snapshot and keeps it."""
        self.stats = self.server.stats()
        return self.stats


def serve(
    ssds: Sequence[ServedSsd],
    *,
    console: Console,
    folder: Path | None = None,
    metrics: str | None = None,
    json_log: str | None = None,
    interval_s: float = DEFAULT_INTERVAL_S,
    stop: threading.Event | None = None,
) -> None:
    """Serves SSDs until SIGINT or SIGTERM, or until `stop` is set.

    Where the console is no terminal, one line per door and then "ready" are printed instead of the live table.

    Raises:
        ConfigError: if an SSD cannot be made or a door cannot be opened; nothing is served then.
    """
    with ExitStack() as stack:
        log = JsonLog(json_log, sys.stdout) if json_log else None
        if log is not None:
            stack.callback(log.close)
        stopping = stack.enter_context(stop_signals(stop or threading.Event()))
        running = [Running(ssd, folder) for ssd in ssds]
        _warn_of_large_stores(running)
        _warn_of_slow_engines(running)
        for one in running:
            stack.callback(one.server.stop)
            one.server.start()
        endpoint = MetricsEndpoint(metrics) if metrics else None
        if endpoint is not None:
            stack.callback(endpoint.close)
        _announce(running, endpoint, console, log, quiet=json_log == "-")
        _watch(running, endpoint, console, log, stopping, interval_s)
        if console.is_terminal:
            console.print("[yellow]stopping: taking leave of the hosts[/]")
        for one in running:
            one.server.stop()
        if log is not None:
            log.write("stop")


def _warn_of_large_stores(running: Sequence[Running]) -> None:
    stores = [ns for one in running for ns in one.device.subsystem.namespaces if ns.media == "memory"]
    bytes_, free = sum(ns.size_bytes for ns in stores), free_memory_bytes()
    if bytes_ > free:
        Console(stderr=True, highlight=False).print(
            f"[yellow]note:[/] memory stores may grow to {format_size(bytes_)}, and {format_size(free)} are free: "
            "hosts that write it full would exhaust the machine (--size or --media file:PATH)",
            soft_wrap=True,
        )


def _warn_of_slow_engines(running: Sequence[Running]) -> None:
    notes = (engine_note(one.device, "real", "use --engine host") for one in running)
    for note in sorted({note for note in notes if note}):
        Console(stderr=True, highlight=False).print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)


def _announce(
    running: Sequence[Running],
    endpoint: MetricsEndpoint | None,
    console: Console,
    log: JsonLog | None,
    *,
    quiet: bool,
) -> None:
    """Says that every door is open: to whoever started us, to the log, and to systemd."""
    if log is not None:
        ssds = [{"name": one.name, "nqn": one.nqn, "addresses": one.server.addresses()} for one in running]
        log.write("ready", ssds=ssds, metrics=endpoint.url if endpoint else None)
    if not console.is_terminal and not quiet:
        lines = [f"{one.name} {address}" for one in running for address in one.server.addresses()]
        if endpoint is not None:
            lines.append(f"metrics {endpoint.url}")
        sys.stdout.write("\n".join([*lines, "ready"]) + "\n")
        sys.stdout.flush()
    notify_systemd("READY=1")


def _watch(
    running: Sequence[Running],
    endpoint: MetricsEndpoint | None,
    console: Console,
    log: JsonLog | None,
    stopping: threading.Event,
    interval_s: float,
) -> None:
    with ExitStack() as stack:
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, auto_refresh=False))
        while True:
            _look_for_faults(running, console, log)
            snapshots = {one.name: one.look() for one in running}
            if endpoint is not None:
                endpoint.update(snapshots)
            if log is not None:
                for name, stats in snapshots.items():
                    log.write("stats", ssd=name, **stats_record(stats))
            if live is not None:
                live.update(live_table(running, endpoint.url if endpoint else None), refresh=True)
            if stopping.wait(interval_s):
                return


def _look_for_faults(running: Sequence[Running], console: Console, log: JsonLog | None) -> None:
    for one in running:
        said = one.look_for_faults()
        if said is None:
            continue
        console.print(f"[yellow]faults:[/] {escape(said)}", soft_wrap=True, highlight=False)
        if log is not None:
            log.write("faults", ssd=one.name, said=said)


def _beside(folder: Path | None, path: str) -> Path:
    """A relative path in a lab file is one from the file's folder."""
    given = Path(path).expanduser()
    return given if folder is None else folder / given


def live_table(running: Sequence[Running], metrics_url: str | None = None) -> RenderableType:
    """All SSDs with their hosts."""
    parts: list[RenderableType] = []
    for one in running:
        if one.stats is not None:
            addresses = one.server.addresses()
            parts += [_ssd_lines(one.name, one.device.name, addresses, one.stats), _host_table(one.stats), Text()]
    hint = "Ctrl-C stops"
    if metrics_url:
        hint += f"   metrics at {metrics_url}"
    return Group(*parts, Text(hint, style="dim"))


def _ssd_lines(name: str, profile: str, addresses: Sequence[str], stats: _core.ServerStats) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    title = Text(name, style="bold cyan") + Text(f"  {profile}", style="not bold")
    title.append(f"  up {clock_time(stats.uptime_s)}", style="not bold dim")
    for index, address in enumerate(addresses):
        grid.add_row(title if index == 0 else "", Text(address, style="dim"))
    rate = Text(format_rate(stats.iops), style="bold cyan")
    rate.append(
        f"   read {_bandwidth(stats.read_bytes_per_s)}   write {_bandwidth(stats.written_bytes_per_s)}"
        f"   depth {stats.queue_depth:.1f}   {stats.completions:,} done",
        style="not bold default",
    )
    grid.add_row("rate", rate)
    grid.add_row("latency", _times(stats.latency) + f"   model {format_duration(stats.target.mean_ns, 3)}")
    lateness = _times(stats.lateness) + f"   worst {format_duration(stats.lateness_max_ns, 3)}"
    grid.add_row("lateness", lateness)
    verdict = Text(stats.verdict_so_far, style=VERDICT_STYLES.get(stats.verdict_so_far, ""))
    if stats.verdict_so_far_cause:
        verdict.append(f": {stats.verdict_so_far_cause}", style="not bold")
    if stats.verdict not in (stats.verdict_so_far, "NONE"):
        verdict.append(f"   (just now {stats.verdict})", style="not bold dim")
    grid.add_row("verdict", verdict)
    for fault in stats.faults:
        line = Text(fault.rule, style="yellow")
        line.append(f"   hit {fault.injected:,} of {fault.matched:,} commands", style="not bold")
        grid.add_row("fault", line)
    return grid


def _host_table(stats: _core.ServerStats) -> RenderableType:
    if not stats.hosts:
        return Text("no host is attached", style="dim")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("host", no_wrap=True, overflow="ellipsis", max_width=72)
    for heading in ("door", "controller", "state"):
        table.add_column(heading, no_wrap=True)
    for heading in ("queues", "reads", "writes", "read", "write"):
        table.add_column(heading, justify="right", no_wrap=True)
    for host in stats.hosts:
        style = "" if host.state == "ready" else "bold red" if host.state == "fatal" else "yellow"
        table.add_row(
            Text(_printable(host.host) or "?"),
            host.door or "?",
            str(host.controller_id),
            Text(host.state, style=style),
            str(host.queues),
            format_rate(host.read_iops),
            format_rate(host.write_iops),
            _bandwidth(host.read_bytes_per_s),
            _bandwidth(host.written_bytes_per_s),
        )
    return table


def _printable(text: str) -> str:
    """A host's own name, without what would steer a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _times(figures: _core.TimeFigures) -> str:
    return (
        f"mean {format_duration(figures.mean_ns, 3)}   p50 {format_duration(figures.p50_ns, 3)}"
        f"   p99 {format_duration(figures.p99_ns, 3)}   p99.9 {format_duration(figures.p999_ns, 3)}"
    )


def _bandwidth(bytes_per_s: float) -> str:
    return format_rate(bytes_per_s, "B/s")


def clock_time(seconds: float) -> str:
    """Hours, minutes and seconds, as a clock shows them."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
