"""The result of a benchmark: one JSON document, as a frozen dataclass.

The document is written by the C++ core and described in docs/reference/result.md. Keys that this version does not
know are kept and written back, so that a newer minor version's results survive a round trip.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from flashmob.errors import ConfigError

if TYPE_CHECKING:
    import polars

SCHEMA = "flashmob-result"
SCHEMA_VERSION = 1

Verdict = Literal["VALID", "INVALID", "NONE", "NOT JUDGED"]


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


# What only the device's own engine knows: None where the device is another process's.
_DEVICE_ONLY = ("target_ns", "processing_ns", "lateness_ns", "lateness_no_gaps_ns", "gaps")
_DISTRIBUTIONS = ("latency_ns", "target_ns", "processing_ns", "lateness_ns", "lateness_no_gaps_ns")
_GAPS = ("gaps", "host_gaps")


@dataclass(frozen=True)
class Result:
    """What one benchmark found. Rates per second, bandwidth in bytes per second, times in ns.

    Attributes:
        iops, bw_bytes: achieved rate and bandwidth over the measured time.
        model_iops: what the timing model gives for that load; None without a model, or where it is not known.
        latency_ns: end to end, as the host saw it.
        target_ns: what the timing model asked for.
        processing_ns: from the fetch of a command to its completion.
        lateness_ns: completion after the target, of all requests; lateness_no_gaps_ns without those a gap hit.
        gaps, host_gaps: times at which the engine, or the driver, was kept from running.
        poll_gap_max_ns: the longest time between two looks at one doorbell.
        late_by_copy_share: share of late requests whose data was still being copied.
        verdict: VALID, INVALID (verdict_cause says why), NONE where there is no model to be true to, or NOT JUDGED
            where the device is another process's. Then target_ns, processing_ns, lateness_ns, lateness_no_gaps_ns,
            gaps, poll_gap_max_ns and late_by_copy_share are None.
        verified, verify_errors: reads whose content was checked, and those that were wrong.
        errors: NVMe status (hexadecimal) -> how often.
        unanswered: commands that were never completed, and given up at the end.
        faults: the rules of injected faults ({"rule", "matched", "injected"}).
        runtime_seconds: how long was measured, in the run's own time (virtual seconds under the virtual clock).
        latency_cdf: (latency in ns, fraction of requests at or below it), ascending.
        wall_seconds, provenance: all that depends on the machine and on wall time.
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
    poll_gap_max_ns: float | None = 0.0
    verdict_cause: str = ""
    late_by_copy_share: float | None = 0.0
    data_moved: bool = True
    verified: int = 0
    verify_errors: int = 0
    verify_first_error: str = ""
    errors: dict[str, int] = field(default_factory=dict)
    unanswered: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)
    ios: int = 0
    read_ios: int = 0
    write_ios: int = 0
    runtime_seconds: float = 0.0
    latency_cdf: tuple[tuple[float, float], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    wall_seconds: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)
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
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"{where}: has schema_version {version!r}, this flashmob reads {SCHEMA_VERSION}; "
                "make it again with this version or read it with the version that made it"
            )
        known = {item.name for item in fields(cls)} - {"extra"}
        values = {key: value for key, value in data.items() if key in known}
        try:
            for key in _DISTRIBUTIONS:
                if key in values and not (values[key] is None and key in _DEVICE_ONLY):
                    values[key] = Distribution.from_dict(values[key] or {})
            for key in _GAPS:
                if key in values and not (values[key] is None and key in _DEVICE_ONLY):
                    values[key] = Gaps.from_dict(values[key] or {})
            if "latency_cdf" in values:
                values["latency_cdf"] = tuple((float(ns), float(share)) for ns, share in values["latency_cdf"])
            extra = {key: data[key] for key in data.keys() - known - {"schema", "schema_version"}}
            return cls(**values, extra=extra)
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{where}: is a damaged result ({error}); make it again") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a result file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{path}: cannot be read ({error}); give a file written by flashmob bench --json"
            ) from None
        return cls.from_json(text, str(path))

    def to_dict(self) -> dict[str, Any]:
        """The JSON document as plain data, the extra keys included."""
        data: dict[str, Any] = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION}
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None:
                data[item.name] = None
            elif item.name in _DISTRIBUTIONS:
                data[item.name] = value.to_dict()
            elif item.name in _GAPS:
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

    @property
    def comparable(self) -> dict[str, Any]:
        """The document without all that depends on the machine and on wall time; equal for equal virtual runs."""
        return {key: value for key, value in self.to_dict().items() if key not in ("provenance", "wall_seconds")}


def _flat(data: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            row |= _flat(value, f"{prefix}{key}.")
        elif not isinstance(value, list | tuple):
            row[prefix + key] = value
    return row
