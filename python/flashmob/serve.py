"""`flashmob serve`: SSDs that other processes and machines attach to, until interrupted, with live figures."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from flashmob import registry
from flashmob.device import core_module, engine_note
from flashmob.errors import EXIT_WRONG, ConfigError
from flashmob.faults import FaultFile
from flashmob.isolated import LEAVE_SHARE, IsolatedServer, ServerEndedError
from flashmob.json_log import JsonLog
from flashmob.lab import DEFAULT_NAME, ServedSsd
from flashmob.live import Picture, View, door_lines, figure_lines
from flashmob.metrics import stats_record
from flashmob.metrics_door import MetricsEndpoint
from flashmob.models import Profile
from flashmob.options import free_memory_bytes
from flashmob.process import StopSignals, notify_systemd, raise_descriptor_limit
from flashmob.units import format_size, split_address

if TYPE_CHECKING:
    from flashmob import _core

DEFAULT_INTERVAL_S = 1.0
# The state file is for people's eyes; shorter intervals than a second are not worth its writing.
_PUBLISH_S = 0.9
# How long a log that does not take its first record may hold up the others who wait for it.
_READY_S = 0.5
# Names that are tried where none is given: ssd0, ssd1, ...
_NAMES_TRIED = 1000


class Lending(Protocol):
    """Doors of SSDs that come and go (flashmob.lending)."""

    said: Sequence[str]  # where they are asked for, a line each

    def close(self) -> None:
        """Opens no more of them. Idempotent."""


class Running:
    """One SSD that is served."""

    def __init__(self, ssd: ServedSsd, claim: registry.Claim | None, folder: Path | None = None) -> None:
        """Makes the SSD. `claim` is its name's, None where there is no folder to tell others of it.

        Raises:
            ConfigError: naming the key and the fix.
        """
        self.name = ssd.name
        self._faults_path = _beside(folder, ssd.faults_file) if ssd.faults_file else None
        self._fault_file = FaultFile(self._faults_path) if self._faults_path else None
        if self._fault_file is not None:
            self._fault_file.check(ssd.written("faults_file"))
        self.device: Profile
        self.server: _core.Server | IsolatedServer
        if ssd.isolate:
            # Here first, without its memory or doors: whatever is wrong is said by one process.
            self.device = ssd.device(folder)
            self.server = IsolatedServer(ssd, folder)
        else:
            self.device, self.server = ssd.server(folder)
        self._secure = ssd.is_secure()
        self.stats: _core.ServerStats | None = None
        self.taken_s = 0.0
        self._claim = claim
        self._published_s = 0.0
        self._started_s = time.time()

    @property
    def nqn(self) -> str:
        """The subsystem's NQN, which NVMe/TCP hosts connect to."""
        return self.device.subsystem.nqn

    @property
    def pid(self) -> int:
        """The process that serves it."""
        return self.server.pid if isinstance(self.server, IsolatedServer) else os.getpid()

    def leave(self, timeout_s: float) -> None:
        """Begins to stop where another process does it, so that several do at once, in so long, s."""
        if isinstance(self.server, IsolatedServer):
            self.server.leave(timeout_s)

    def end(self) -> None:
        """Forgets an SSD whose process has ended."""
        self.server.stop()
        if self._claim is not None:
            self._claim.release()

    @property
    def view(self) -> View:
        """What is shown of it."""
        addresses = self.server.addresses()
        return View(
            self.name, self.device.name, addresses, self.stats, extra=connect_hints(addresses, secure=self._secure)
        )

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
        """Takes a snapshot and keeps it, and when it was taken."""
        now_s = time.monotonic()
        self.stats = self.server.stats()
        self.taken_s = self.server.taken_s if isinstance(self.server, IsolatedServer) else now_s
        return self.stats

    def publish(self, more: Mapping[str, Any]) -> str | None:
        """Tells `flashmob ls` and `flashmob top`, about once a second. What to say where that has failed, else None."""
        now_s = time.monotonic()
        if self._claim is None or now_s - self._published_s < _PUBLISH_S:
            return None
        self._published_s = now_s
        state = {
            "version": core_module().__version__,
            "profile": self.device.name,
            "nqn": self.nqn,
            "serial": self.device.subsystem.serial,
            "addresses": self.server.addresses(),
            "started_s": self._started_s,
            "faults_file": str(self._faults_path.absolute()) if self._faults_path else None,
            **more,
            "settings": _settings(self.device),
            "stats": stats_record(self.stats or self.look()),
        }
        try:
            self._claim.publish(state)
        except OSError as error:
            self._claim = None
            return f"{self.name}: flashmob ls and top do not see it any more: {error}"
        return None


def serve(
    ssds: Sequence[ServedSsd],
    *,
    console: Console,
    folder: Path | None = None,
    metrics: str | None = None,
    json_log: str | None = None,
    interval_s: float = DEFAULT_INTERVAL_S,
    any_name: bool = False,
    lend: Callable[[Mapping[str, Any]], Lending] | None = None,
) -> int:
    """Serves SSDs until SIGINT, SIGTERM or SIGHUP, and returns the exit code: 130 or 0.

    Where the console is no terminal, one line per door and then "ready" are printed instead of the live figures.
    `any_name`: a name that another process has is replaced by the next free one. `lend` opens doors of the running
    servers, which it is given by name.

    Raises:
        ConfigError: if an SSD cannot be made or a door cannot be opened; nothing is served then.
    """
    with ExitStack() as stack:
        log = JsonLog(json_log, sys.stdout) if json_log else None
        stopping = StopSignals()
        if log is not None:
            # After the signals: who reads the last lines may take longer over them than leaving may; nobody else may.
            stack.callback(lambda: log.close(stopping.left_s()))
        stack.enter_context(stopping)
        running = []
        for ssd in ssds:
            named, claim = _claimed(ssd, any_name)
            if claim is not None:
                stack.callback(claim.release)
            running.append(Running(named, claim, folder))
            if named.isolate:
                stack.callback(running[-1].server.stop)
        endpoint = MetricsEndpoint(metrics) if metrics else None
        if endpoint is not None:
            stack.callback(endpoint.close)
        raise_descriptor_limit()
        for one in running:
            stack.callback(one.server.stop)
            one.server.start()
        lending = None if lend is None else lend({one.name: one.server for one in running})
        if lending is not None:
            stack.callback(lending.close)
        _warn_of_large_stores(running)
        _warn_of_slow_engines(running)
        watch = _Watch(running, endpoint, console, log, interval_s, json_log)
        watch.publish()  # Who waits for "ready" finds it in `flashmob ls`.
        said = () if lending is None else lending.said
        _announce(running, endpoint, console, log, said, quiet=json_log == "-")
        watch.until(stopping)
        if console.is_terminal:
            console.print("[yellow]stopping: taking leave of the hosts[/]")
        if lending is not None:
            lending.close()
        # A look at SSDs that stand still may have taken some of the time already.
        leave_s = LEAVE_SHARE * stopping.left_s()
        for one in running:
            one.leave(leave_s)
        for one in running:
            one.server.stop()
        if log is not None:
            log.write("stop")
    return stopping.exit_code if running else EXIT_WRONG


def _claimed(ssd: ServedSsd, any_name: bool) -> tuple[ServedSsd, registry.Claim | None]:
    """The SSD with a name that is ours until the process ends.

    Two SSDs of one name have one NQN, and a host that sees both takes them for one drive.
    """
    for number in range(_NAMES_TRIED):
        wanted = ssd if number == 0 else ssd.model_copy(update={"name": f"{DEFAULT_NAME[:-1]}{number}"})
        try:
            claim = registry.claim(wanted.name)
        except registry.NameTakenError as taken:
            if not any_name or f"vfio-user:{wanted.socket_path}" in taken.state.get("addresses", ()):
                raise
            continue
        except registry.UnusableError as error:
            _note(f"flashmob ls and top will not see {wanted.name}: {error}")
            return wanted, None
        if number:
            _note(f"another process serves {ssd.name}, so this one is called {wanted.name} (--name)")
        return wanted, claim
    raise ConfigError("a thousand SSDs are served by this user; choose a --name")


def connect_hints(addresses: Sequence[str], *, secure: bool = False) -> list[str]:
    """The command of a Linux host for each NVMe/TCP door of one address, by TLS where that is needed."""
    hints = []
    for address in addresses:
        place, _, nqn = address.removeprefix("nvme-tcp:").partition("/")
        if address.startswith("nvme-tcp:"):
            host, port = split_address(place)
            if host not in ("0.0.0.0", "::"):
                hints.append(f"nvme connect -t tcp -a {host} -s {port} -n {nqn}" + (" --tls" if secure else ""))
    return hints


def _note(text: str) -> None:
    Console(stderr=True, highlight=False).print(f"[yellow]note:[/] {escape(text)}", soft_wrap=True)


def _warn_of_large_stores(running: Sequence[Running]) -> None:
    stores = [ns for one in running for ns in one.device.subsystem.namespaces if ns.media == "memory"]
    bytes_, free = sum(ns.size_bytes for ns in stores), free_memory_bytes()
    if bytes_ > free:
        _note(
            f"memory stores may grow to {format_size(bytes_)}, and {format_size(free)} are free: "
            "hosts that write it full would exhaust the machine (--size or --media file:PATH)"
        )


def _warn_of_slow_engines(running: Sequence[Running]) -> None:
    notes = (engine_note(one.device, "real", "use --engine host") for one in running)
    for note in sorted({note for note in notes if note}):
        _note(note)


def _announce(
    running: Sequence[Running],
    endpoint: MetricsEndpoint | None,
    console: Console,
    log: JsonLog | None,
    more: Sequence[str],
    *,
    quiet: bool,
) -> None:
    """Says that every door is open: to whoever started us, to the log, and to systemd."""
    if log is not None:
        ssds = [
            {"name": one.name, "nqn": one.nqn, "pid": one.pid, "addresses": one.server.addresses()} for one in running
        ]
        log.write("ready", ssds=ssds, metrics=endpoint.url if endpoint else None)
        log.flush(_READY_S)  # Who waits for "ready" elsewhere finds it in the log.
    if console.is_terminal:
        lines = [line for one in running for line in door_lines(one.view)] + [Text(line) for line in more]
        if endpoint is not None:
            lines.append(Text(f"metrics {endpoint.url}"))
        for line in [*lines, Text("Ctrl-C stops", style="dim")]:
            console.print(line, soft_wrap=True, highlight=False)
    elif not quiet:
        said = [f"{one.name} {address}" for one in running for address in one.server.addresses()] + list(more)
        if endpoint is not None:
            said.append(f"metrics {endpoint.url}")
        print("\n".join([*said, "ready"]), flush=True)
    notify_systemd("READY=1")


class _Watch:
    """Looks at what is served once an interval, and tells whoever wants to know."""

    def __init__(
        self,
        running: list[Running],
        endpoint: MetricsEndpoint | None,
        console: Console,
        log: JsonLog | None,
        interval_s: float,
        json_log: str | None,
    ) -> None:
        self._running = running
        self._endpoint = endpoint
        self._console = console
        self._log = log
        self._interval_s = interval_s
        self._picture = Picture(console) if console.is_terminal else None
        self._told = {
            "interval_s": interval_s,
            "metrics": endpoint.url if endpoint else None,
            "json_log": json_log if json_log in (None, "-") else str(Path(json_log).absolute()),
        }

    def publish(self) -> None:
        """Tells other processes of this user how things are."""
        for one in self._running:
            with suppress(ServerEndedError):  # The next look says it.
                said = one.publish(self._told)
                if said is not None:
                    self._say("note", said)

    def until(self, stopping: StopSignals) -> None:
        """Looks until a signal comes, or until every SSD had a process of its own and has lost it."""
        while True:
            snapshots = {}
            for one in list(self._running):
                if (stats := self._look(one)) is not None:
                    snapshots[one.name] = stats
                if stopping.wait(0):  # Looks at several that stand still are longer than leaving may take.
                    break
            if self._endpoint is not None:
                self._endpoint.update(snapshots, {one.name: one.taken_s for one in self._running})
            if self._log is not None:
                for name, stats in snapshots.items():
                    self._log.write("stats", ssd=name, **stats_record(stats))
            self.publish()
            if self._picture is not None:
                width = self._console.width
                self._picture.draw([line for one in self._running for line in (Text(), *figure_lines(one.view, width))])
            if not self._running or stopping.wait(self._interval_s):
                return

    def _look(self, one: Running) -> _core.ServerStats | None:
        try:
            said = one.look_for_faults()
            if said is not None:
                self._tell("faults", one, said)
            return one.look()
        except ConfigError as error:
            self._tell("trouble", one, str(error))
            return None
        except ServerEndedError as error:
            self._running.remove(one)
            one.end()
            self._tell("ended", one, f"{error}{'; the others go on' if self._running else ''}")
            return None

    def _tell(self, what: str, one: Running, said: str) -> None:
        self._say(what, said)
        if self._log is not None:
            self._log.write(what, ssd=one.name, said=said)

    def _say(self, what: str, text: str) -> None:
        line = Text(f"{what}: ", style="yellow") + Text(text, style="default")
        if self._picture is not None:
            self._picture.say([line])
        else:
            self._console.print(line, soft_wrap=True, highlight=False)


def _settings(device: Profile) -> dict[str, Any]:
    """The device's settings for readers elsewhere: a relative path of a medium means nothing to them."""
    settings = device.settings()
    for namespace in settings["subsystem"]["namespaces"]:
        kind, _, path = namespace["media"].partition(":")
        if path:
            namespace["media"] = f"{kind}:{Path(path).expanduser().absolute()}"
    return settings


def _beside(folder: Path | None, path: str) -> Path:
    """A relative path in a lab file is one from the file's folder."""
    given = Path(path).expanduser()
    return given if folder is None else folder / given
