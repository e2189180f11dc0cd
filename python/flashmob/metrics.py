"""What served SSDs do, for machines: records of a JSON log, and Prometheus' text format over HTTP."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from flashmob.errors import ConfigError
from flashmob.units import split_address

if TYPE_CHECKING:
    from flashmob import _core

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def _valid(stats: _core.ServerStats) -> float:
    # "VALID (lateness only)" is VALID as far as anything could be judged.
    return {"VALID": 1, "INVALID": 0}.get(stats.verdict_so_far.partition(" (")[0], -1)


# Metric, kind, help, and how to get it from a snapshot. Names end in their unit, counters in _total.
_Row = tuple[str, str, str, Callable[["_core.ServerStats"], float]]
_SSD_METRICS: tuple[_Row, ...] = (
    ("flashmob_uptime_seconds", "gauge", "Time since the SSD was started.", lambda s: s.uptime_s),
    ("flashmob_hosts", "gauge", "Hosts that are attached.", lambda s: len(s.hosts)),
    ("flashmob_hosts_seen_total", "counter", "Hosts that ever attached.", lambda s: s.hosts_seen),
    ("flashmob_completions_total", "counter", "Commands of every kind that were completed.", lambda s: s.completions),
    ("flashmob_read_commands_total", "counter", "Read commands.", lambda s: s.read_commands),
    ("flashmob_write_commands_total", "counter", "Write commands.", lambda s: s.write_commands),
    ("flashmob_read_bytes_total", "counter", "Bytes read by hosts.", lambda s: s.read_bytes),
    ("flashmob_written_bytes_total", "counter", "Bytes written by hosts.", lambda s: s.written_bytes),
    ("flashmob_iops", "gauge", "Commands a second, over the last interval.", lambda s: s.iops),
    ("flashmob_queue_depth", "gauge", "Commands in the device, on average over the interval.", lambda s: s.queue_depth),
    (
        "flashmob_busy_share",
        "gauge",
        "Share of the last interval in which the engine had work.",
        lambda s: s.busy_share,
    ),
    (
        "flashmob_door_busy_share",
        "gauge",
        "Share of the last interval in which the NVMe/TCP door had work.",
        lambda s: s.door_busy_share,
    ),
    (
        "flashmob_backlog_share",
        "gauge",
        "Share of fetches that left commands behind, over the last interval.",
        lambda s: s.backlog_share,
    ),
    ("flashmob_lateness_max_seconds", "gauge", "Worst lateness since the start.", lambda s: s.lateness_max_ns / 1e9),
    ("flashmob_gaps_total", "counter", "Times at which an engine thread was kept from running.", lambda s: s.gap_count),
    ("flashmob_gap_longest_seconds", "gauge", "The longest of them.", lambda s: s.gap_longest_ns / 1e9),
    ("flashmob_valid", "gauge", "Verdict so far: 1 true to the model, 0 not, -1 not known.", _valid),
    (
        "flashmob_tolerance_share",
        "gauge",
        "What VALID allows, as a share of the target's mean or p99.",
        lambda s: s.tolerance_share_so_far,
    ),
)
_TIMES = (
    ("flashmob_latency_seconds", "From fetch to completion, over the last interval.", "latency"),
    ("flashmob_target_seconds", "What the timing model asked for, over the last interval.", "target"),
    ("flashmob_lateness_seconds", "Completion after the model's target, over the last interval.", "lateness"),
    ("flashmob_error_bound_seconds", "At most what the emulator added, over the last interval.", "error_bound"),
    ("flashmob_door_delay_seconds", "At most what the NVMe/TCP door added, over the last interval.", "door_delay"),
)
_HOST_METRICS: tuple[tuple[str, str, str], ...] = (
    ("flashmob_host_queues", "I/O queue pairs of a host.", "queues"),
    ("flashmob_host_read_iops", "Reads a second of a host, over the last interval.", "read_iops"),
    ("flashmob_host_write_iops", "Writes a second of a host, over the last interval.", "write_iops"),
    ("flashmob_host_read_bytes_per_second", "Read bandwidth of a host, over the last interval.", "read_bytes_per_s"),
    (
        "flashmob_host_written_bytes_per_second",
        "Write bandwidth of a host, over the last interval.",
        "written_bytes_per_s",
    ),
)


def prometheus_text(snapshots: Mapping[str, _core.ServerStats]) -> str:
    """The exposition of all SSDs, by name."""
    lines: list[str] = []
    for metric, kind, text, value in _SSD_METRICS:
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}"]
        lines += [f"{metric}{_labels(ssd=name)} {_number(value(stats))}" for name, stats in snapshots.items()]
    for metric, text, part in _TIMES:
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} gauge"]
        for name, stats in snapshots.items():
            figures: _core.TimeFigures = getattr(stats, part)
            values = {
                "mean": figures.mean_ns,
                "p50": figures.p50_ns,
                "p99": figures.p99_ns,
                "p999": figures.p999_ns,
            }
            for figure, time_ns in values.items():
                lines.append(f"{metric}{_labels(ssd=name, figure=figure)} {_number(time_ns / 1e9)}")
    for metric, text, part in _HOST_METRICS:
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} gauge"]
        for name, stats in snapshots.items():
            for host in stats.hosts:
                labels = _labels(ssd=name, door=host.door, host=host.host, controller=str(host.controller_id))
                lines.append(f"{metric}{labels} {_number(getattr(host, part))}")
    metric = "flashmob_faults_injected_total"
    lines += [f"# HELP {metric} Commands that a fault rule hit.", f"# TYPE {metric} counter"]
    for name, stats in snapshots.items():
        lines += [f"{metric}{_labels(ssd=name, rule=fault.rule)} {fault.injected}" for fault in stats.faults]
    return "\n".join(lines) + "\n"


def _labels(**labels: str) -> str:
    # A host chooses its own name, so nothing in it is taken for granted.
    escaped = {
        key: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"


def _number(value: float) -> str:
    return repr(value) if isinstance(value, int) else f"{value:.9g}"


class MetricsEndpoint:
    """Serves /metrics in a thread of its own until close()."""

    def __init__(self, address: str) -> None:
        """Listens at ADDR:PORT.

        Raises:
            ConfigError: if it cannot.
        """
        self._text = prometheus_text({})
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] not in ("/metrics", "/"):
                    self.send_error(404, "Not found: the metrics are at /metrics")
                    return
                body = endpoint._text.encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
                """Says nothing: a scrape is not worth a line."""

        host, port = split_address(address)
        try:
            self._server = _Server((host, port), Handler)
        except OSError as error:
            raise ConfigError(
                f"metrics: cannot listen at {address}: {error.strerror or error}; choose another address or port"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="flashmob-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self._server.server_address[:2]
        name = str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/metrics"

    def update(self, snapshots: Mapping[str, _core.ServerStats]) -> None:
        """What the next scrape gets."""
        self._text = prometheus_text(snapshots)

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A scraper that connects and says nothing must not hold a thread for ever.
    timeout = 10

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        import socket

        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        handler.timeout = self.timeout
        super().__init__(address, handler)


class JsonLog:
    """A file of JSON records, one a line, flushed line by line; "-" is standard output."""

    def __init__(self, path: str, stdout: TextIO) -> None:
        """Opens the file for appending.

        Raises:
            ConfigError: if it cannot.
        """
        self._own: TextIO | None = None
        if path != "-":
            try:
                self._own = Path(path).expanduser().open("a", encoding="utf-8")
            except OSError as error:
                raise ConfigError(
                    f"JSON log {path} cannot be written: {error.strerror}; use a folder that exists and is yours"
                ) from None
        self._file = self._own or stdout
        self._failed = False

    def write(self, event: str, **values: Any) -> None:
        """Appends one record: time, event, and the values.

        A full disk costs records, not the hosts their SSD: it is said once on standard error. A reader of standard
        output that has left ends the process as usual.
        """
        record = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **values}
        try:
            self._file.write(json.dumps(record, separators=(",", ":")) + "\n")
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            if not self._failed:
                self._failed = True
                sys.stderr.write(f"note: records are missing from the JSON log: {error.strerror}\n")

    def close(self) -> None:
        """Closes the file; standard output stays open."""
        if self._own is not None:
            with suppress(OSError):  # What could not be written before cannot be now.
                self._own.close()


def stats_record(stats: _core.ServerStats) -> dict[str, Any]:
    """A snapshot as plain data, with the names of include/flashmob/server.h."""
    return {name: _plain(getattr(stats, name)) for name in _public(stats)}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str | int | float):
        return value
    return {name: _plain(getattr(value, name)) for name in _public(value)}


def _public(value: object) -> Iterable[str]:
    return (name for name in dir(value) if not name.startswith("_"))
