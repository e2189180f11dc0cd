"""A served SSD that goes away before the load has begun: its run ends with a result, as it would later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import flashmob
import pytest
from flashmob.pytest_plugin import Serve

LOAD: flashmob.BenchKeywords = {"queues": 2, "qd": 4, "runtime": "200ms", "ramp": "0"}


@pytest.mark.parametrize("tcp", [True, False], ids=["nvme-tcp", "vfio-user"])
@pytest.mark.parametrize(
    ("rule", "verified"),
    [
        ("drop on=read at=10", True),  # one of the samples
        ("fatal on=read at=10", True),
        ("drop on=write at=10", True),  # while the store is filled
        ("drop on=admin at=8", False),  # when queues are asked for
    ],
)
def test_the_run_ends_with_a_result(flashmob_serve: Serve, tcp: bool, rule: str, verified: bool) -> None:
    served = flashmob_serve("unlimited", tcp=tcp, size="16M", faults=[rule])
    result = flashmob.bench(served.target, verify=100 if verified else 0, **LOAD)
    assert result.device_failed
    assert (result.ios, result.unanswered, result.errors) == (0, 0, {})
    assert result.not_verified == ("the device failed before the load began" if verified else "")
    assert flashmob.Result.from_json(result.to_json()) == result


def test_the_command_reports_it(flashmob_serve: Serve, tmp_path: Path) -> None:
    served = flashmob_serve("unlimited", tcp=True, size="16M", faults=["drop on=read at=10"])
    kept = tmp_path / "result.json"
    command = ["bench", served.target, "--verify", "100", "--runtime", "200ms", "--json", str(kept)]
    done = subprocess.run(
        [sys.executable, "-m", "flashmob", *command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "the device failed" in " ".join(done.stdout.split())
    assert flashmob.Result.from_json(kept.read_text()).device_failed


def test_what_cannot_be_asked_is_still_an_error(flashmob_serve: Serve) -> None:
    served = flashmob_serve("unlimited", tcp=True, size="16M", faults=["drop on=identify at=1"])
    with pytest.raises(RuntimeError, match="Transient Transport Error"):
        flashmob.bench(served.target, **LOAD)
