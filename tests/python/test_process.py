"""A process that is told to stop ends, whatever it hangs on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

_STUCK = """
import threading
from flashmob.process import StopSignals
with StopSignals() as stopping:
    print("ready", flush=True)
    stopping.wait(60)
    stuck = threading.Lock()
    stuck.acquire()
    stuck.acquire()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_is_enough_where_something_hangs(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", _STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        try:
            _, said = process.communicate(timeout=8)
        finally:
            process.kill()
        assert process.returncode == 1
        assert b"holds up the end" in said


def test_a_second_sigterm_ends_the_process_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", _STUCK], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        try:
            process.wait(timeout=8)
        finally:
            process.kill()
        assert time.monotonic() - begin < 1.2
