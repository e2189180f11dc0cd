"""A moment of the mixed soak (`make soak`), and that it finds what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOST = ROOT / "build/release/tests/soak_host"
SECONDS = 12


def soak(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    if not HOST.exists():
        pytest.skip("soak_host is not built; run `scripts/soak.sh`, or cmake --build --preset release")
    command = [sys.executable, ROOT / "tests/soak/soak.py", "--minutes", f"{SECONDS / 60}", "--host", HOST]
    return subprocess.run(
        [*command, "--folder", folder, *more], capture_output=True, text=True, timeout=300, check=False
    )


def test_a_moment_of_it(tmp_path: Path) -> None:
    done = soak(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("all was right in ")
    assert "sectors checked" in last
    assert not list(tmp_path.iterdir()), "nothing is left of it"


def test_damage_is_found(tmp_path: Path) -> None:
    done = soak(tmp_path, "--spoil")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED: a host of " in done.stdout


def test_growth_is_found() -> None:
    sys.path.insert(0, str(ROOT / "tests/soak"))
    try:
        from soak_server import Use, beyond, use_of
    finally:
        sys.path.pop(0)
    before = Use(memory=100 << 20, descriptors=50, mappings=400, threads=20)
    more = Use(memory=10 << 20, descriptors=2, mappings=10, threads=0)
    assert beyond(before, before, more) == ""
    assert beyond(before, before._replace(descriptors=53, threads=21), more) == "descriptors, threads"
    assert beyond(before, before._replace(memory=111 << 20, mappings=410), more) == "memory"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        use = use_of(other.pid)
        assert use.threads == 1
        assert use.descriptors >= 3
        assert use.mappings > 3
        other.kill()
