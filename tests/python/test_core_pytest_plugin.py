"""The pytest plugin: its documented example passes, and a drive that fails in every way leaves the test-suite alive."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

TREE = Path(__file__).parents[2]
EXAMPLE = TREE / "examples" / "python" / "test_with_faults.py"

# Each test loses something and waits for it without a limit of its own.
HANGS = """\
import asyncio, math, threading
import numpy, pytest

LOST = ["lose on=io"]


@pytest.mark.flashmob(faults=LOST)
def test_result(flashmob_ssd):
    flashmob_ssd.queue(depth=1).write(0, bytes(512)).result()


@pytest.mark.flashmob(faults=LOST)
def test_full_queue(flashmob_ssd):
    queue = flashmob_ssd.queue(depth=1)
    for _ in range(3):
        queue.write(0, bytes(512))
    queue.drain()


@pytest.mark.flashmob(faults=LOST)
def test_await(flashmob_ssd):
    async def work():
        await flashmob_ssd.queue().flush()

    asyncio.run(work())


@pytest.mark.flashmob(faults=LOST)
def test_only_teardown_waits(flashmob_ssd):
    flashmob_ssd.queue().write(0, bytes(512))
    flashmob_ssd.set_faults(["lose on=admin"])


@pytest.mark.flashmob(faults=["fatal at=1"])
def test_dead_controller(flashmob_ssd):
    flashmob_ssd.read(0)


@pytest.mark.flashmob
def test_a_thread_goes_on(flashmob_ssd):
    queue = flashmob_ssd.queue()

    def work():
        while True:
            queue.read(0, numpy.empty(512, numpy.uint8)).result()

    threading.Thread(target=work, daemon=True).start()


def test_served(flashmob_serve, flashmob_bench):
    served = flashmob_serve(vfio_user=True, size="1M", faults=["lose on=read at=30"])
    flashmob_bench(served.target, timeout_s=1, queues=1, qd=4, ios=1000, verify=0, fill=False)


def test_a_close_that_hangs(flashmob_make_ssd, monkeypatch):
    from flashmob import pytest_plugin

    monkeypatch.setattr(pytest_plugin, "_CLOSE_S", 0.1)
    pytest_plugin._within(0.1, threading.Event().wait, "closing it")


@pytest.mark.flashmob(timeout_s=math.inf)
def test_endless(flashmob_ssd, flashmob_bench):
    assert flashmob_bench("unlimited", timeout_s=math.inf, clock="virtual", ios=1000, size="1M").ios >= 1000


def test_an_endless_close_that_hangs(monkeypatch):
    from flashmob import pytest_plugin

    monkeypatch.setattr(pytest_plugin, "_LONGEST_CLOSE_S", 0.2)
    pytest_plugin._within(math.inf, threading.Event().wait, "closing that one")


def test_the_rest_runs(flashmob_ssd, flashmob_timeout_s):
    assert flashmob_ssd.timeout_s == flashmob_timeout_s == 0.5
    assert flashmob_ssd.read(0).any() == False
    assert flashmob_ssd.namespace.size_bytes == 64 << 20
"""
FAILING = {
    "test_result": "TimeoutError: write to namespace 1 at LBA 0 has not completed within 0.5 s; faults: lose on=io",
    "test_full_queue": "TimeoutError: 3 requests have not completed within 0.5 s",
    "test_await": "TimeoutError: flush of namespace 1 has not completed within 0.5 s",
    "test_dead_controller": "flashmob.errors.ControllerFatalError",
    "test_served": "has not ended within 1 s; were completions lost?",
    "test_a_close_that_hangs": "closing it has not ended within 0.1 s; it is left behind",
    "test_an_endless_close_that_hangs": "closing that one has not ended within 0.2 s; it is left behind",
}


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    known = any(one.value == "flashmob.pytest_plugin" for one in entry_points(group="pytest11"))
    plugin = [] if known else ["-p", "flashmob.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", *plugin, *arguments]
    environment = os.environ | {"PYTHONPATH": str(TREE / "python")} if not known else None
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_example(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "-q", str(EXAMPLE), "--rootdir", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_nothing_hangs_a_suite(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nflashmob_timeout_s = 0.5\n", encoding="utf-8")
    (tmp_path / "test_hangs.py").write_text(HANGS, encoding="utf-8")
    begun = time.monotonic()
    done = run_pytest(tmp_path, "--tb=line", "-rA")
    assert time.monotonic() - begun < 60
    passed = {line.split("::")[1] for line in done.stdout.splitlines() if line.startswith("PASSED")}
    expected = {"test_only_teardown_waits", "test_a_thread_goes_on", "test_endless", "test_the_rest_runs"}
    assert passed == expected, done.stdout
    assert "errors" not in done.stdout.splitlines()[-1]
    for said in FAILING.values():
        assert said in done.stdout, (said, done.stdout)


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(flashmob_ssd): ...\n", encoding="utf-8")
    done = run_pytest(tmp_path, "-o", "flashmob_timeout_s=soon")
    assert "flashmob_timeout_s = 'soon' is not possible: use seconds, such as 5" in done.stdout
    assert done.returncode == 1
