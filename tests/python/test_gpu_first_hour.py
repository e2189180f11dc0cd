"""The first hour on a GPU: what its script says without one. The steps themselves are rehearsed by hand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPS = ["build", "costs", "vocabulary", "sanitizer", "rules", "suites", "one-unit", "workloads", "sweeps", "profile"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Scripts alone, so that nothing of the real tree's output is read or written."""
    for name in ("gpu_first_hour.sh", "step.sh"):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    return tmp_path


def first_hour(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # No GPU, whatever this machine has.
    (tree / "bin").mkdir(exist_ok=True)
    smi = tree / "bin" / "nvidia-smi"
    smi.write_text("#!/bin/sh\nexit 9\n")
    smi.chmod(0o755)
    path = f"{tree / 'bin'}:{os.environ['PATH']}"
    command = [str(tree / "scripts" / "gpu_first_hour.sh"), *words]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": path}, timeout=60, check=False
    )


def test_lists_its_steps(tree: Path) -> None:
    done = first_hour(tree, "--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == STEPS


def test_says_in_one_sentence_that_there_is_no_gpu(tree: Path) -> None:
    done = first_hour(tree)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 1
    assert "there is no GPU on this machine" in done.stdout
    assert "STAND_IN=1" in done.stdout
    assert not (tree / "out").exists()


def test_refuses_a_step_that_there_is_not(tree: Path) -> None:
    done = first_hour(tree, "--stand-in", "everything")
    assert done.returncode == 2
    assert "there is no step everything: use build" in done.stderr


def test_says_which_steps_need_a_gpu(tree: Path) -> None:
    done = first_hour(tree, "--stand-in", "sanitizer", "profile")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("needs a GPU: ") == 2


def test_keeps_what_failed_and_does_not_repeat_what_passed(tree: Path) -> None:
    runner = tree / "build" / "release" / "gpu" / "gpu_cuda_test"
    runner.parent.mkdir(parents=True)
    runner.write_text('#!/bin/sh\necho "the library is $FLASHMOB_CUDA_LIBRARY"\n')
    runner.chmod(0o755)
    out = tree / "out" / "gpu-first-hour-stand-in"
    done = first_hour(tree, "--stand-in", "vocabulary", "one-unit")
    assert done.returncode == 1
    note = json.loads((out / "vocabulary.json").read_text())
    assert (note["passed"], note["simulated"]) == (True, True)
    assert "libflashmob_cuda_stand_in.so" in (out / "vocabulary.log").read_text()
    assert json.loads((out / "one-unit.json").read_text())["passed"] is False
    assert len((out / "steps.jsonl").read_text().splitlines()) == 2
    # What has not been built cannot be run, so nothing comes after it.
    again = first_hour(tree, "--stand-in")
    assert again.returncode == 1
    assert "build        FAILED" in again.stdout
    (out / "build.json").write_text(json.dumps({**note, "step": "build"}))
    again = first_hour(tree, "--stand-in")
    assert "vocabulary   has passed before" in again.stdout
