"""The scripts that run fuzzers, with stand-ins for the compiler and for the fuzzers themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Writes down which build ran, with what; finds something in the build without sanitizers, and fails as it is told to.
STAND_IN = """#!/bin/bash
build=$(basename "$(dirname "$(dirname "$(dirname "$0")")")")
echo "$build $*" >>calls
for argument; do corpus=${last:-} last=$argument; done
case "$*" in *-merge=1*) cp "$corpus"/* "$(echo "$*" | grep -o 'build/fuzz/least-[a-z_]*')"; exit 0 ;; esac
if [ "$build" = fuzz ]; then touch "$corpus/found"; fi
if [ -e "fails-$build" ] && { [ "$build" = fuzz ] || [ -e "$corpus/found" ]; }; then
  echo "artifact_prefix='build/fuzz/'; Test unit written to build/fuzz/a_fuzz-crash-1"
  exit 77
fi
echo "#2 DONE cov: 5 ft: 6"
echo "stat::number_of_executed_units: 4000"
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    cmake = tmp_path / "bin" / "cmake"
    cmake.write_text('#!/bin/bash\necho "cmake $*" >>calls\n', encoding="utf-8")
    cmake.chmod(0o755)
    (tmp_path / "scripts").mkdir()
    for name in ("step.sh", "fuzz.sh", "fuzz_one.sh", "fuzz_night.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    (tmp_path / "tests/fuzz/corpus/a_fuzz").mkdir(parents=True)
    (tmp_path / "tests/fuzz/a_fuzz.cpp").touch()
    for build in ("asan", "fuzz"):
        fuzzer = tmp_path / "build" / build / "tests/fuzz/a_fuzz"
        fuzzer.parent.mkdir(parents=True)
        fuzzer.write_text(STAND_IN, encoding="utf-8")
        fuzzer.chmod(0o755)
    return tmp_path


def run(clone: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{clone / 'bin'}:{os.environ['PATH']}"
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FUZZ_")}
    return subprocess.run(
        [clone / "scripts" / script],
        env=inherited | {"PATH": path, "JOBS": "2"} | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )


def calls(clone: Path) -> list[str]:
    return (clone / "calls").read_text(encoding="utf-8").splitlines()


def fuzzed(clone: Path) -> list[str]:
    """Which build ran for how long, in order."""
    ran = [call.split() for call in calls(clone) if "-max_total_time" in call]
    return [f"{words[0]} {words[1].removeprefix('-max_total_time=')}" for words in ran]


def test_fuzz_is_sanitized_unless_asked(clone: Path) -> None:
    done = run(clone, "fuzz.sh", FUZZ_SECONDS="2")
    assert done.returncode == 0, done.stdout
    assert fuzzed(clone) == ["asan 2"]
    assert not [call for call in calls(clone) if "preset fuzz" in call]
    assert "2000 a second" in done.stdout


def test_fuzz_of_the_fast_build(clone: Path) -> None:
    done = run(clone, "fuzz.sh", FUZZ_SECONDS="2", FUZZ_BUILD="fuzz")
    assert done.returncode == 0, done.stdout
    assert fuzzed(clone) == ["fuzz 2"]
    assert not [call for call in calls(clone) if "preset asan" in call]


def test_a_night_alternates_and_ends_sanitized(clone: Path) -> None:
    """One fuzzer, two cores, four minutes, three rounds: 160 s each."""
    done = run(clone, "fuzz_night.sh", FUZZ_NIGHT_MINUTES="4", FUZZ_NIGHT_ROUNDS="3")
    assert done.returncode == 0, done.stdout
    assert fuzzed(clone) == ["fuzz 120", "asan 40"] * 3
    assert all("build/fuzz/corpus/a_fuzz tests/fuzz/corpus/a_fuzz" in call for call in calls(clone) if "-max" in call)
    assert "-merge=1" in calls(clone)[-1]
    assert "1 inputs kept of 1" in done.stdout


@pytest.mark.parametrize("build", ["fuzz", "asan"])
def test_a_night_fails_where_either_build_does(clone: Path, build: str) -> None:
    (clone / f"fails-{build}").touch()
    done = run(clone, "fuzz_night.sh", FUZZ_NIGHT_MINUTES="4", FUZZ_NIGHT_ROUNDS="1")
    assert done.returncode == 1
    # The other build and the minimising go on, and the end says it again.
    assert fuzzed(clone) == ["fuzz 360", "asan 120"]
    end = done.stdout.split("inputs kept of")[1]
    assert "the input: build/fuzz/a_fuzz-crash-1" in end
    assert f"again:     build/{build}/tests/fuzz/a_fuzz build/fuzz/a_fuzz-crash-1" in end
    assert ("sanitized: build/asan/tests/fuzz/a_fuzz" in end) == (build == "fuzz")
