"""docs/reference/served.md names everything that served SSDs emit, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from flashmob import registry, serve
from flashmob.lab import checked_ssd
from flashmob.metrics import prometheus_text, stats_record
from flashmob.serve import Running
from flashmob.served import record, summary

pytest.importorskip("flashmob._core")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "served.md"
# The names of what only an attached host or a rule in force makes appear.
NAMES = r"`([a-z_0-9]+)`"


def tables(heading: str) -> list[set[str]]:
    """For each table of a section the names in the first column."""
    section = PAGE.read_text(encoding="utf-8").split(f"# {heading}\n", 1)[1]
    section = re.split(r"^#+ ", section, maxsplit=1, flags=re.MULTILINE)[0]
    found: list[set[str]] = []
    for block in re.findall(r"(?:^\|.*\n)+", section, flags=re.MULTILINE):
        rows = block.splitlines()[2:]
        found.append({name for row in rows for name in re.findall(NAMES, row.split("|")[1])})
    return found


@pytest.fixture(scope="module")
def served() -> Any:
    """An SSD with a fault rule; nobody is attached."""
    one = Running(checked_ssd({"profile": "unlimited", "size": "1M", "tcp": 0, "faults": ["error at=9"]}, "test"), None)
    one.server.start()
    yield one
    one.server.stop()


def keys(record: Mapping[str, Any]) -> set[str]:
    return set(record)


def test_fields_of_stats(served: Running) -> None:
    record = stats_record(served.look())
    (documented,) = tables("Fields of `stats`")
    assert keys(record) == documented
    (times,) = tables("Times")
    for name in (
        "latency",
        "target",
        "lateness",
        "error_bound",
        "door_delay",
        "total_latency",
        "total_lateness",
        "total_error_bound",
        "total_door_delay",
    ):
        assert keys(record[name]) == times
    (faults,) = tables("Faults")
    assert keys(record["faults"][0]) == faults


def test_events() -> None:
    (documented,) = tables("JSON log")
    code = Path(serve.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r"(?:_tell|log\.write)\(\"(\w+)\"", code)) == documented


def test_fields_of_hosts() -> None:
    from flashmob import _core

    (documented,) = tables("Hosts")
    assert {name for name in dir(_core.HostStats) if not name.startswith("_")} == documented


def test_fields_of_leases() -> None:
    from flashmob import _core

    (documented,) = tables("Leases")
    assert {name for name in dir(_core.LeaseStats) if not name.startswith("_")} == documented


def test_metrics(served: Running) -> None:
    (documented,) = tables("Metrics")
    emitted = set(re.findall(r"^# TYPE (\S+)", prometheus_text({"ssd0": served.look()}), flags=re.MULTILINE))
    assert emitted == documented
    samples = set(re.findall(r"^(flashmob_\w+)\{", prometheus_text({"ssd0": served.look()}), flags=re.MULTILINE))
    of_others = ("flashmob_host_", "flashmob_lease_")
    without_hosts = {name for name in documented if not name.startswith(of_others)}
    assert samples == without_hosts


def test_list_and_live_view(served: Running) -> None:
    claim = registry.claim("ssd0")
    try:
        served._claim = claim
        assert served.publish({"interval_s": 1.0, "metrics": None, "json_log": None}) is None
        (state,) = registry.servers()
        listed, kept = tables("The list and the live view")
        assert keys(summary(state)) == listed
        assert keys(record(state)) == kept
        json.dumps(state)
    finally:
        claim.release()
