"""What the demonstration says at its end, on terminals of any width."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flashmob
import pytest
from flashmob import Result
from flashmob.demo import ReadBack, summary_lines, why_invalid

Document = Callable[..., dict[str, Any]]
FILE = Path("/a/long/path/to/a/file/that/somebody/wants/to/copy/from/the/terminal/without/its/end/being/cut.img")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_summary_fits_and_the_path_is_whole(result_document: Document, width: int) -> None:
    results = [
        Result.from_dict(result_document(clock="virtual", device={"profile": "storagenext-100m"}, verified=1_234_567)),
        Result.from_dict(result_document(verdict="INVALID", verify_errors=3)),
        Result.from_dict(result_document(verdict="VALID (lateness only)")),
    ]
    lines = [line.plain for line in summary_lines(results, ReadBack(FILE, 3 << 20, 0.5, "a", "a"), width)]
    assert all(len(line) <= width for line in lines[:-1])
    assert lines[-1] == f"file  EQUAL  3 MiB at 6 MB/s: {FILE}"
    assert "INVALID" in lines[2]
    if width >= 60:
        assert all("MIOPS" in line for line in lines[1:-1])
    if width >= 80:
        assert "virtual" in lines[1]
    if width >= 120:
        assert lines[2].endswith("3 WRONG")
    different = summary_lines(results, ReadBack(FILE, 3 << 20, 0.5, "a", "b"), width)
    assert "DIFFERENT" in different[-1].plain


@pytest.mark.parametrize("shares", [(0.02, 0.167), (0.167, 0.02)])
def test_the_summary_says_within_what_valid_holds(result_document: Document, shares: tuple[float, float]) -> None:
    tolerance = dict(zip(("iops_share", "latency_share"), shares, strict=True))
    result = Result.from_dict(result_document(tolerance=tolerance))
    lines = summary_lines([result], ReadBack(FILE, 3 << 20, 0.5, "a", "a"), 80)
    assert "VALID (within 16.7 %)" in lines[1].plain


def test_invalid_is_explained(result_document: Document) -> None:
    result = Result.from_dict(result_document(verdict="INVALID"))
    assert "did not keep up with d7-ps1010" in why_invalid(result, last=True)
    assert "The next device" not in why_invalid(result, last=True)
    assert why_invalid(result, last=False).endswith("The next device asks for less:")


_CTRL_C = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


@pytest.mark.parametrize("event", [_CTRL_C, "raise RuntimeError('broken')"])
def test_ctrl_c_while_the_command_is_imported(tmp_path: Path, event: str) -> None:
    """Nothing of the command line's is there yet to catch it."""
    (tmp_path / "pydantic.py").write_text(f"{event}\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(Path(flashmob.__file__).parents[1])])
    command = [sys.executable, "-m", "flashmob", "ls"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    if event == _CTRL_C:
        assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    else:
        assert done.stderr.endswith("RuntimeError: broken\n")
