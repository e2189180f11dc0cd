"""The unit file, as systemd itself reads it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "packaging/systemd/flashmob.service"


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    # What it starts must be there, and is not before it is installed.
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/flashmob", shutil.which("true") or "/bin/true"))
    found = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_a_mistake_would_be_found(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "wrong.service"
    unit.write_text("[Service]\nType=notify\nExecStart=/nowhere/at/all\nTimeoutStopSeconds=3\n")
    found = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert "TimeoutStopSeconds" in found.stderr
