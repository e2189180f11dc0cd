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


# Importing the command line runs callbacks of importlib's own, in which an exception is lost: this Ctrl-C comes there.
_INTERRUPTED_IMPORT = """
import os, signal, sys
from flashmob.__main__ import main
def interrupt(frame, event, argument):
    if frame.f_code.co_name == "cb" and "importlib" in frame.f_code.co_filename:
        sys.setprofile(None)
        print("sent", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
sys.argv = ["flashmob", "profiles", "list"]
sys.setprofile(interrupt)
main()
"""


def test_ctrl_c_while_the_command_line_is_imported_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED_IMPORT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "sent\n", "")


@pytest.mark.parametrize("ignored", [False, True])
def test_the_command_itself_has_the_handler_that_was_there(ignored: bool) -> None:
    code = (
        "import signal, sys, flashmob.cli; from flashmob.__main__ import main\n"
        f"if {ignored}: signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "flashmob.cli.main = lambda: print(repr(signal.getsignal(signal.SIGINT)))\n"
        "main()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert ("SIG_IGN" in said) if ignored else ("default_int_handler" in said)
