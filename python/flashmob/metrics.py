"""What served SSDs do, for machines: snapshots as records of a JSON log, and in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashmob import _core


def _valid(stats: _core.ServerStats) -> float:
    # "VALID (lateness only)" is VALID as far as anything could be judged; _lateness_only tells the two apart.
    return {"VALID": 1, "INVALID": 0}.get(stats.verdict_so_far.partition(" (")[0], -1)


def _lateness_only(stats: _core.ServerStats) -> float:
    return int(stats.verdict_so_far == "VALID (lateness only)")


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
    ("flashmob_iops", "gauge", "Commands of every kind a second, over the last interval.", lambda s: s.iops),
    ("flashmob_read_iops", "gauge", "Reads a second, over the last interval.", lambda s: s.read_iops),
    ("flashmob_write_iops", "gauge", "Writes a second, over the last interval.", lambda s: s.write_iops),
    (
        "flashmob_read_bytes_per_second",
        "gauge",
        "Read bandwidth, over the last interval.",
        lambda s: s.read_bytes_per_s,
    ),
    (
        "flashmob_written_bytes_per_second",
        "gauge",
        "Write bandwidth, over the last interval.",
        lambda s: s.written_bytes_per_s,
    ),
    ("flashmob_hosts_left", "gauge", "Hosts that left in the last interval.", lambda s: s.left.count),
    ("flashmob_left_iops", "gauge", "Their part of flashmob_iops.", lambda s: s.left.iops),
    ("flashmob_left_read_iops", "gauge", "Their part of flashmob_read_iops.", lambda s: s.left.read_iops),
    ("flashmob_left_write_iops", "gauge", "Their part of flashmob_write_iops.", lambda s: s.left.write_iops),
    (
        "flashmob_left_read_bytes_per_second",
        "gauge",
        "Their part of flashmob_read_bytes_per_second.",
        lambda s: s.left.read_bytes_per_s,
    ),
    (
        "flashmob_left_written_bytes_per_second",
        "gauge",
        "Their part of flashmob_written_bytes_per_second.",
        lambda s: s.left.written_bytes_per_s,
    ),
    ("flashmob_queue_depth", "gauge", "Commands in the device, on average over the interval.", lambda s: s.queue_depth),
    (
        "flashmob_busy_share",
        "gauge",
        "Share of the last interval in which the busiest service unit had work.",
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
        "flashmob_valid_lateness_only",
        "gauge",
        "1 where flashmob_valid is 1 and speaks of lateness alone, as the rest could not be judged.",
        _lateness_only,
    ),
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
    ("flashmob_host_iops", "Commands of every kind a second of a host, over the last interval.", "iops"),
    ("flashmob_host_read_iops", "Reads a second of a host, over the last interval.", "read_iops"),
    ("flashmob_host_write_iops", "Writes a second of a host, over the last interval.", "write_iops"),
    ("flashmob_host_read_bytes_per_second", "Read bandwidth of a host, over the last interval.", "read_bytes_per_s"),
    (
        "flashmob_host_written_bytes_per_second",
        "Write bandwidth of a host, over the last interval.",
        "written_bytes_per_s",
    ),
)
_LEASE_METRICS: tuple[tuple[str, str, str, str], ...] = (
    ("flashmob_lease_attached", "gauge", "1 while somebody uses the lease, else 0.", "is_attached"),
    ("flashmob_lease_size_bytes", "gauge", "What is lent.", "size_bytes"),
    ("flashmob_lease_refused_total", "counter", "Clients that were turned away at the lease's socket.", "refused"),
    ("flashmob_lease_read_commands_total", "counter", "Read commands of a lease.", "read_commands"),
    ("flashmob_lease_write_commands_total", "counter", "Write commands of a lease.", "write_commands"),
    ("flashmob_lease_read_bytes_total", "counter", "Bytes read by a lease.", "read_bytes"),
    ("flashmob_lease_written_bytes_total", "counter", "Bytes written by a lease.", "written_bytes"),
)


def prometheus_text(snapshots: Mapping[str, _core.ServerStats], ages_s: Mapping[str, float] | None = None) -> str:
    """The exposition of all SSDs, by name; `ages_s` says how old each snapshot is, 0 where it says nothing."""
    metric = "flashmob_snapshot_age_seconds"
    lines = [f"# HELP {metric} Time since these figures were taken.", f"# TYPE {metric} gauge"]
    lines += [f"{metric}{_labels(ssd=name)} {_number((ages_s or {}).get(name, 0.0))}" for name in snapshots]
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
    for metric, kind, text, part in _LEASE_METRICS:
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}"]
        for name, stats in snapshots.items():
            for lease in stats.leases:
                labels = _labels(ssd=name, lease=lease.name, uid=str(lease.uid))
                lines.append(f"{metric}{labels} {int(getattr(lease, part))}")
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
