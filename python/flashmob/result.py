"""The result of a benchmark: one JSON document, as a frozen dataclass.

The document is written by the C++ core and described in docs/reference/result.md. Keys that this version does not
know are kept and written back, so that a newer minor version's results survive a round trip.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from flashmob.errors import ConfigError
from flashmob.result_check import DamageError, check
from flashmob.units import format_duration, format_rate

if TYPE_CHECKING:
    import pandas
    import polars

SCHEMA = "flashmob-result"
SCHEMA_VERSION = 2
# Version 1 had no directions apart, no model's latencies and no bound of the error; what it has means the same.
READABLE_VERSIONS = (1, 2)

Verdict = Literal["VALID", "VALID (lateness only)", "INVALID", "NONE", "NOT JUDGED"]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Figures of a distribution of times, ns. Those that were not reported are None."""

    mean: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    max: float = 0.0
    min: float | None = None
    p90: float | None = None
    p9999: float | None = None
    p99999: float | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From the JSON object; keys that are not figures of a distribution are left out."""
        known = {item.name for item in fields(cls)}
        return cls(**{key: float(value) for key, value in data.items() if key in known and value is not None})

    def to_dict(self) -> dict[str, float]:
        """The JSON object, without the figures that were not reported."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {key: value for key, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Gaps:
    """Times at which a thread did not get to run: count, the longest in ns, their share of the run (0 to 1)."""

    count: int = 0
    longest_ns: float = 0.0
    share: float = 0.0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From the JSON object."""
        return cls(int(data.get("count", 0)), float(data.get("longest_ns", 0)), float(data.get("share", 0)))


@dataclass(frozen=True, slots=True)
class Direction:
    """The reads, or the writes, of a run: those that succeeded."""

    ios: int = 0
    iops: float = 0.0
    bw_bytes: float = 0.0
    latency_ns: Distribution = Distribution()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From the JSON object."""
        latency = Distribution.from_dict(data.get("latency_ns") or {})
        return cls(int(data.get("ios", 0)), float(data.get("iops", 0)), float(data.get("bw_bytes", 0)), latency)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "ios": self.ios,
            "iops": self.iops,
            "bw_bytes": self.bw_bytes,
            "latency_ns": self.latency_ns.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Allowance:
    """By how much two runs may differ: rate as a share, latencies in ns."""

    iops_share: float = 0.0
    mean_ns: float = 0.0
    p99_ns: float = 0.0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From the JSON object."""
        return cls(*(float(data.get(item.name, 0)) for item in fields(cls)))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ModelAllowance(Allowance):
    """What chance may do to a model's figures; of reads and writes alone, too."""

    read_mean_ns: float = 0.0
    read_p99_ns: float = 0.0
    write_mean_ns: float = 0.0
    write_p99_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Tolerance(Allowance):
    """All that VALID allows, chance included; of reads and writes alone, too, None where they are not judged apart.

    `latency_share` is the largest of it, as a share of the model's mean or p99; None in results of older versions.
    """

    read_mean_ns: float | None = None
    read_p99_ns: float | None = None
    write_mean_ns: float | None = None
    write_p99_ns: float | None = None
    latency_share: float | None = None

    @property
    def share(self) -> float | None:
        """The largest share of all: of the model's rate, or of one of its latencies; None in old results."""
        return None if self.latency_share is None else max(self.iops_share, self.latency_share)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From the JSON object."""
        known = {item.name for item in fields(cls)}
        return cls(**{key: float(value) for key, value in data.items() if key in known and value is not None})

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Model:
    """The timing model run on the same arrivals by an ideal host and an ideal device: what should have come out.

    Attributes:
        iops, latency_ns: its rate and latencies.
        read_latency_ns, write_latency_ns: of reads and writes alone; None where there were none.
        allowance: by how much its own figures are uncertain.
    """

    iops: float = 0.0
    latency_ns: Distribution = Distribution()
    allowance: ModelAllowance = ModelAllowance()
    read_latency_ns: Distribution | None = None
    write_latency_ns: Distribution | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From the JSON object."""
        latency = Distribution.from_dict(data.get("latency_ns") or {})
        reads, writes = (
            Distribution.from_dict(data[key]) if data.get(key) else None
            for key in ("read_latency_ns", "write_latency_ns")
        )
        allowance = ModelAllowance.from_dict(data.get("allowance") or {})
        return cls(float(data.get("iops", 0)), latency, allowance, reads, writes)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "iops": self.iops,
            "latency_ns": self.latency_ns.to_dict(),
            "read_latency_ns": self.read_latency_ns.to_dict() if self.read_latency_ns else None,
            "write_latency_ns": self.write_latency_ns.to_dict() if self.write_latency_ns else None,
            "allowance": self.allowance.to_dict(),
        }


# What a key's JSON object becomes.
_READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    **dict.fromkeys(
        (
            "latency_ns",
            "target_ns",
            "processing_ns",
            "lateness_ns",
            "lateness_no_gaps_ns",
            "fetch_wait_ns",
            "error_bound_ns",
        ),
        Distribution.from_dict,
    ),
    **dict.fromkeys(("gaps", "host_gaps", "long_work", "host_long_work"), Gaps.from_dict),
    **dict.fromkeys(("read", "write"), Direction.from_dict),
    "model": Model.from_dict,
    "tolerance": Tolerance.from_dict,
}
# From which share on a report says what VALID allows: noticeably more than the usual 2 %.
_WORTH_SAYING = 0.025
# These are always there; the others are null where nobody knows them.
_ALWAYS = ("latency_ns", "host_gaps")


@dataclass(frozen=True, repr=False)
class Result:
    """What one benchmark found. Rates per second, bandwidth in bytes per second, times in ns.

    Attributes:
        iops, bw_bytes: achieved rate and bandwidth over the measured time.
        model_iops: what the timing model gives for that load; None without a model, or where it is not known.
        ios, read_ios, write_ios: commands that succeeded in the measured time; rates and latencies are theirs.
        read, write: the two directions apart; None where there was nothing of that kind.
        failed: commands that failed ("ios") and their share of all ("share"); None before schema 2.
        model: what the timing model gives for the same arrivals; tolerance: by how much the run may differ from it.
        latency_ns: end to end, as the host saw it.
        target_ns: what the timing model asked for.
        processing_ns: from the fetch of a command to its completion.
        lateness_ns: completion after the target, of all requests; lateness_no_gaps_ns without those a gap hit.
        fetch_wait_ns: at most how long a command waited from its doorbell to its fetch.
        error_bound_ns: at most how much the emulator added to a command: fetch wait and lateness.
        path_ns: the path's constant cost, which was taken off the model's least latency.
        gaps, host_gaps: times at which the engine, or the driver, was kept from running by the machine.
        long_work, host_long_work: pieces of the engine's, or the driver's, own work that took longer than what counts
            as a gap.
        flash: what the medium has done, of a model that has one: write_amplification, moved_bytes and others.
        backlog_share, busy_share: fetches that left entries behind; share of time in which the busiest unit had work.
        unfinished: what was in flight or waiting when measuring ended ("outstanding", "backlog", "oldest_ns").
        poll_gap_max_ns: the longest time between two looks at one doorbell.
        late_by_copy_share: share of late requests whose data was still being copied.
        verdict: VALID, VALID (lateness only) where not all can be judged, INVALID (verdict_cause says why), NONE where
            there is no model to be true to, or NOT JUDGED where the device is another process's. Then target_ns,
            processing_ns, lateness_ns, lateness_no_gaps_ns, gaps, poll_gap_max_ns and late_by_copy_share are None.
        verified, verify_errors: reads whose content was checked, those of the ramp included, and those that were wrong.
        verify_crowded: reads that were to be checked, and could not be: writes of the same blocks were in flight.
        not_verified: why no read was checked although that was wanted; else empty.
        errors: status code type and status code ("0x281") -> how often; error_names: their names.
        unanswered: commands that were never completed, and given up at the end.
        cancelled: the run was stopped before its end. device_failed: the device failed before it; what it did until
            then is reported.
        faults: the rules of injected faults ({"rule", "matched", "injected"}).
        runtime_seconds: how long was measured, in the run's own time (virtual seconds under the virtual clock).
        latency_cdf: (latency in ns, fraction of requests at or below it), ascending.
        wall_seconds, provenance: all that depends on the machine and on wall time.
        trace: what became of the trace that was replayed; else None.
        schema_version: of the document that it was read from.
        extra: keys of a newer version.
    """

    iops: float
    verdict: Verdict
    clock: str
    jobname: str = ""
    rw: str = ""
    bs: Any = None
    bw_bytes: float = 0.0
    model_iops: float | None = None
    latency_ns: Distribution = Distribution()
    target_ns: Distribution | None = Distribution()
    processing_ns: Distribution | None = Distribution()
    lateness_ns: Distribution | None = Distribution()
    lateness_no_gaps_ns: Distribution | None = Distribution()
    gaps: Gaps | None = Gaps()
    host_gaps: Gaps = Gaps()
    read: Direction | None = None
    write: Direction | None = None
    failed: dict[str, Any] | None = None
    model: Model | None = None
    tolerance: Tolerance | None = None
    fetch_wait_ns: Distribution | None = None
    error_bound_ns: Distribution | None = None
    path_ns: float | None = None
    long_work: Gaps | None = None
    host_long_work: Gaps | None = None
    backlog_share: float | None = None
    busy_share: float | None = None
    unfinished: dict[str, Any] | None = None
    flash: dict[str, Any] | None = None
    poll_gap_max_ns: float | None = 0.0
    verdict_cause: str = ""
    late_by_copy_share: float | None = 0.0
    data_moved: bool = True
    verified: int = 0
    verify_crowded: int = 0
    verify_errors: int = 0
    verify_first_error: str = ""
    not_verified: str = ""
    errors: dict[str, int] = field(default_factory=dict)
    error_names: dict[str, str] = field(default_factory=dict)
    unanswered: int = 0
    cancelled: bool = False
    device_failed: bool = False
    faults: list[dict[str, Any]] = field(default_factory=list)
    ios: int = 0
    read_ios: int = 0
    write_ios: int = 0
    runtime_seconds: float = 0.0
    latency_cdf: tuple[tuple[float, float], ...] = ()
    trace: dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    wall_seconds: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str, where: str = "result") -> Self:
        """Reads the JSON document; `where` names it in errors.

        Raises:
            ConfigError: if it is no result, or one of a version that this package cannot read.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where}: is not JSON ({error}); give a file written by flashmob bench --json") from None
        return cls.from_dict(data, where)

    @classmethod
    def from_dict(cls, data: object, where: str = "result") -> Self:
        """From the parsed JSON document; see from_json."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ConfigError(f"{where}: is not a flashmob result; give a file written by flashmob bench --json")
        version = data.get("schema_version")
        if version not in READABLE_VERSIONS:
            readable = " and ".join(map(str, READABLE_VERSIONS))
            raise ConfigError(
                f"{where}: has schema_version {version!r}, this flashmob reads {readable}; "
                "make it again with this version or read it with the version that made it"
            )
        known = {item.name for item in fields(cls)} - {"extra"}
        values = {key: value for key, value in data.items() if key in known}
        try:
            check(values)
            for key in _READERS.keys() & values.keys():
                if values[key] is not None or key in _ALWAYS:
                    values[key] = _READERS[key](values[key] or {})
            if "latency_cdf" in values:
                values["latency_cdf"] = tuple((float(ns), float(share)) for ns, share in values["latency_cdf"])
            extra = {key: data[key] for key in data.keys() - known - {"schema"}}
            return cls(**values, extra=extra)
        except DamageError as damage:
            raise ConfigError(f"{where}: {damage}; the result is damaged, make it again") from None
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ConfigError(f"{where}: is a damaged result ({error}); make it again") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a result file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(
                f"{str(path)[:200]}: cannot be read ({why}); give a file written by flashmob bench --json"
            ) from None
        return cls.from_json(text, str(path))

    def to_dict(self) -> dict[str, Any]:
        """The JSON document as plain data, the extra keys included."""
        data: dict[str, Any] = {"schema": SCHEMA, "schema_version": self.schema_version}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Distribution | Direction | Allowance | Model):
                data[item.name] = value.to_dict()
            elif isinstance(value, Gaps):
                data[item.name] = asdict(value)
            elif item.name == "latency_cdf":
                data[item.name] = [list(point) for point in value]
            elif item.name != "extra":
                data[item.name] = value
        return data | self.extra

    def to_json(self, indent: int | None = 2) -> str:
        """The JSON document."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_polars(self) -> polars.DataFrame:
        """One row: every number, text and flag of the document, nested keys joined with a dot ("latency_ns.p99").

        Concatenate several with polars.concat(..., how="diagonal_relaxed").
        """
        try:
            import polars
        except ImportError:
            raise ImportError("to_polars() needs polars; run pip install polars") from None
        return polars.DataFrame([_flat(self.to_dict(), "")])

    def to_pandas(self) -> pandas.DataFrame:
        """One row, as to_polars() gives it; concatenate several with pandas.concat(...)."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas() needs pandas; run pip install pandas") from None
        return pandas.DataFrame([_flat(self.to_dict(), "")])

    def __repr__(self) -> str:
        """One line: what ran, what came out, and whether to believe it. to_dict() has everything."""
        name = self.device.get("profile") or self.jobname or "?"
        latency = self.latency_ns
        return (
            f"<Result {name}: {format_rate(self.iops)}, mean {format_duration(latency.mean)}, p99 "
            f"{format_duration(latency.p99)}, {self.clock} time, {self.verdict_text}"
            f"{', NOT VERIFIED' if self.not_verified and not self.verified else ''}>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the main figures as a table."""
        from flashmob.result_html import html

        return html(self)

    @property
    def verdict_text(self) -> str:
        """The verdict as reports say it: "VALID (within 16.7 %)" where noticeably more than 2 % is allowed."""
        return verdict_words(self.verdict, self.tolerance.share if self.tolerance is not None else None)

    @property
    def comparable(self) -> dict[str, Any]:
        """The document without all that depends on the machine and on wall time; equal for equal virtual runs."""
        return {key: value for key, value in self.to_dict().items() if key not in ("provenance", "wall_seconds")}


def verdict_words(verdict: str, tolerance_share: float | None) -> str:
    """A verdict, and within what a VALID one holds where that is noticeably more than 2 %; None: nobody said."""
    if verdict != "VALID" or tolerance_share is None or tolerance_share <= _WORTH_SAYING:
        return verdict
    if tolerance_share >= 1:  # Percentages of more than the whole are hard to read.
        return f"VALID (within a factor of {math.ceil(10 * (1 + tolerance_share)) / 10:,})"
    return f"VALID (within {100 * tolerance_share:.1f} %)"


def _flat(data: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            row |= _flat(value, f"{prefix}{key}.")
        elif not isinstance(value, list | tuple):
            row[prefix + key] = value
    return row
