"""`flashmob gpu serve`: an SSD whose engine runs on the GPU, for other processes, until interrupted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flashmob.device import core_device, core_module, on_engine
from flashmob.live import clock_time
from flashmob.process import StopSignals, notify_systemd
from flashmob.profiles import load_profile
from flashmob.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from flashmob import _core

_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class ServedClient:
    """One process that is attached, with counters since it attached."""

    client: int
    pid: int
    queues: int
    mapped_bytes: int
    read_commands: int
    write_commands: int
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class ServedStats:
    """What a GpuServer does. `lost`: the engine's kernel has gone down, and everybody was disconnected."""

    uptime_s: float
    clients: tuple[ServedClient, ...]
    clients_seen: int
    clients_refused: int
    completions: int
    mean_lateness_ns: float
    last_event: str
    lost: bool


class GpuServer:
    """One SSD, served at a socket until close(); use it as a context manager through contextlib.closing()."""

    def __init__(
        self, profile: str, path: Path, wanted: Mapping[str, Any] | None = None, *, sms: int = 1, backend: str = "auto"
    ) -> None:
        """Starts the SSD and listens.

        Args:
            profile: a packaged profile's name or a path.
            path: of the UNIX socket.
            wanted: dotted key -> value, changes of the profile.
            sms: multiprocessors that the engine takes.
            backend: what runs it: auto, cuda or fibres.

        Raises:
            ConfigError: naming what is wrong and the fix.
        """
        changes = dict(wanted or {})
        self.profile = on_engine(load_profile(profile, changes), "gpu", sms, changes)
        self._core: _core.GpuServer = core_module().gpu_serve(core_device(self.profile), str(path), backend)
        self.address = self._core.address()
        self.engine = self._core.engine()

    def stats(self) -> ServedStats:
        """Clients and counters, as of at most a quarter of a second ago."""
        found = self._core.stats()
        return ServedStats(**found | {"clients": tuple(ServedClient(**client) for client in found["clients"])})

    def close(self) -> None:
        """Disconnects the clients and removes the socket."""
        self._core.stop()


def serve(
    profile: str,
    path: Path,
    wanted: Mapping[str, Any],
    *,
    sms: int,
    backend: str,
    console: Console,
) -> int:
    """Serves until SIGINT, SIGTERM or SIGHUP, and returns the exit code: 130 or 0.

    Where the console is no terminal, the address, what runs the engine, and then "ready" are printed.

    Raises:
        ConfigError: if the SSD cannot be made or the socket not be opened.
        RuntimeError: if the engine's kernel has gone down.
    """
    with (
        StopSignals() as stopping,
        closing(GpuServer(profile, path, wanted, sms=sms, backend=backend)) as server,
    ):
        if not console.is_terminal:
            print(f"{server.address}\n{server.engine}\nready", flush=True)
        notify_systemd("READY=1")
        if console.is_terminal:
            with Live(console=console, auto_refresh=False) as live:
                _watch(server, stopping, live)
        else:
            _watch(server, stopping, None)
        return stopping.exit_code


def _watch(server: GpuServer, stopping: StopSignals, live: Live | None) -> None:
    before = server.stats()
    while True:
        stats = server.stats()
        if stats.lost:
            raise RuntimeError(f"{stats.last_event}; nobody is served any more")
        if live is not None:
            live.update(_table(server, stats, before), refresh=True)
        before = stats
        if stopping.wait(_INTERVAL_S):
            return


def _table(server: GpuServer, stats: ServedStats, before: ServedStats) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    title = Text(server.profile.name, style="bold cyan")
    title.append(f"  up {clock_time(stats.uptime_s)}", style="not bold dim")
    grid.add_row(title, Text(server.address, style="dim"))
    grid.add_row("engine", server.engine)
    interval_s = stats.uptime_s - before.uptime_s
    rate = (stats.completions - before.completions) / interval_s if interval_s > 0 else 0.0
    grid.add_row("rate", f"{format_rate(rate)}   {stats.completions:,} done")
    grid.add_row("lateness", f"mean {format_duration(stats.mean_lateness_ns, 3)} after the model's targets")
    if stats.last_event:
        grid.add_row("last", Text(stats.last_event, style="dim"))
    return Group(grid, _clients(stats), Text("Ctrl-C stops", style="dim"))


def _clients(stats: ServedStats) -> RenderableType:
    if not stats.clients:
        return Text("no client is attached", style="dim")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("client", "process", "queues", "memory", "reads", "writes", "read", "written"):
        table.add_column(heading, justify="right", no_wrap=True)
    for client in stats.clients:
        table.add_row(
            str(client.client),
            str(client.pid),
            str(client.queues),
            format_size(client.mapped_bytes),
            f"{client.read_commands:,}",
            f"{client.write_commands:,}",
            format_size(client.read_bytes),
            format_size(client.written_bytes),
        )
    return table
