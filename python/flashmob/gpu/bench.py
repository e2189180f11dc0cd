"""One workload on a Gpu, with all that a result needs to be read later: options, machine, date, command."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from flashmob.device import core_module
from flashmob.errors import ConfigError
from flashmob.gpu.device import Gpu
from flashmob.gpu.inputs import Access, Graph
from flashmob.gpu.results import Outcome

SCHEMA = "flashmob-gpu-result"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class GpuResult:
    """What one workload found (docs/reference/gpu-api.md). Times of `outcome` are those of the SSDs' clock."""

    workload: str
    backend: dict[str, Any]
    ssds: list[dict[str, Any]]
    options: dict[str, Any]
    outcome: dict[str, Any]
    wall_seconds: float
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def verified(self) -> bool:
        """Whether the data were right."""
        return bool(self.outcome["verified"])

    def to_dict(self) -> dict[str, Any]:
        """The JSON document as plain data."""
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **asdict(self)}

    def to_json(self) -> str:
        """The JSON document."""
        return json.dumps(self.to_dict(), indent=2)


def provenance(command: str) -> dict[str, Any]:
    """Which version ran when, where, by what command."""
    from flashmob import __version__

    machine = core_module().machine_info()
    return {
        "version": __version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "host": platform.node(),
        "cpu": machine["cpu"],
        "cores": machine["cores"],
        "kernel": machine["kernel"],
        "command": command,
    }


def _mean(gpu: Gpu, access: Access, options: dict[str, Any]) -> Outcome:
    return gpu.mean(access=access, **options)


def _graph(options: dict[str, Any]) -> Graph:
    return Graph.generate(
        options.pop("graph", "uniform"),
        scale=options.pop("scale", 10),
        degree=options.pop("degree", 16),
        seed=options.pop("seed", 1),
    )


def _bfs(gpu: Gpu, access: Access, options: dict[str, Any]) -> Outcome:
    graph = _graph(options)
    return gpu.bfs(graph, access=access, **options)


def _spmv(gpu: Gpu, access: Access, options: dict[str, Any]) -> Outcome:
    graph = _graph(options)
    x = np.random.default_rng(1).random(graph.vertices, np.float32)
    return gpu.spmv(graph, x, access=access, **options)


def _pagerank(gpu: Gpu, access: Access, options: dict[str, Any]) -> Outcome:
    graph = _graph(options)
    return gpu.pagerank(graph, access=access, **options)


def _dlrm(gpu: Gpu, access: Access, options: dict[str, Any]) -> Outcome:
    return gpu.dlrm(access=access, **options)


def _ctc(gpu: Gpu, _: Access, options: dict[str, Any]) -> Outcome:
    return gpu.ctc(**options)


def _random_io(gpu: Gpu, _: Access, options: dict[str, Any]) -> Outcome:
    return gpu.random_io(**options)


WORKLOADS: dict[str, Callable[[Gpu, Access, dict[str, Any]], Outcome]] = {
    "mean": _mean,
    "bfs": _bfs,
    "spmv": _spmv,
    "pagerank": _pagerank,
    "dlrm": _dlrm,
    "ctc": _ctc,
    "random-io": _random_io,
}


def run_workload(
    gpu: Gpu, name: str, *, access: Access | None = None, command: str = "", options: Mapping[str, Any] | None = None
) -> GpuResult:
    """Runs one of WORKLOADS.

    Raises:
        ConfigError: if there is none of that name, or the options do not fit it.
    """
    if name not in WORKLOADS:
        raise ConfigError(f"{name} is no workload; use one of {', '.join(WORKLOADS)}")
    how = access or Access()
    given = dict(options or {})
    start_s = time.monotonic()
    try:
        outcome = WORKLOADS[name](gpu, how, dict(given))
    except TypeError as error:
        raise ConfigError(f"{name}: {error}; see docs/reference/gpu-api.md for its options") from None
    wall_seconds = time.monotonic() - start_s
    return GpuResult(
        workload=name,
        backend=asdict(gpu.backend),
        ssds=[asdict(ssd) for ssd in gpu.ssds],
        options={**given, "access": asdict(how)} if name not in ("ctc", "random-io") else given,
        outcome=outcome.to_dict(),
        wall_seconds=round(wall_seconds, 3),
        provenance=provenance(command),
    )


def save(results: list[GpuResult], path: Path, command: str) -> None:
    """Writes results as one JSON document: what make gpu-check leaves behind."""
    document = {
        "schema": "flashmob-gpu-check",
        "schema_version": SCHEMA_VERSION,
        "all_verified": all(result.verified for result in results),
        "results": [result.to_dict() for result in results],
        "provenance": provenance(command),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
