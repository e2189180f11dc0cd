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
    # What it starts must be there, and is not before it is installed: another program that is found by its name.
    unit = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8")
    assert text.count("\nExecStart=flashmob serve ") == 1
    unit.write_text(text.replace("ExecStart=flashmob ", "ExecStart=true "))
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


def test_the_commands_of_the_unit_exist() -> None:
    """The line that systemd starts is one that this command line takes."""
    from flashmob import cli

    line = next(line for line in UNIT.read_text(encoding="utf-8").splitlines() if line.startswith("ExecStart="))
    program, *arguments = line.partition("=")[2].split()
    assert program == "flashmob"
    assert arguments[:3] == ["serve", "--config", "/etc/flashmob/lab.toml"]
    absent = ["/nonexistent/lab.toml" if argument.startswith("/etc") else argument for argument in arguments]
    assert cli.run(lambda: cli.app(absent, standalone_mode=True)) == 2
