"""An SSD of a lab file that is served by a process of its own, so that a crash takes one drive and not the lab.

`flashmob serve` is the parent: it keeps names, metrics, logs and the view. The child holds engine, doors and media.
They talk by JSON lines on the child's standard input and output, one answer a request; secrets of a lab file so never
stand in an argument list. The child ends with its input, and so with its parent, however that ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from flashmob.errors import ConfigError
from flashmob.process import STOP_S

if TYPE_CHECKING:
    from flashmob import _core
    from flashmob.lab import ServedSsd

# Looks at the SSDs are one after the other; one that hangs, or stands in a debugger, must not hold up the view.
_LOOK_S = 0.5
# After so long without an answer what was known before is no news any more.
_SILENT_S = 2.0
# How long leaving may take; whoever sees to our own end has some more patience.
LEAVE_SHARE = 0.75
_LEAVE_S = LEAVE_SHARE * STOP_S


class ServerEndedError(Exception):
    """The process of an SSD has ended; the text says how."""


class IsolatedServer:
    """What `flashmob serve` asks of a `_core.Server`, answered by a process of its own."""

    def __init__(self, ssd: ServedSsd, folder: Path | None) -> None:
        """Starts the process and makes the SSD in it.

        Raises:
            ConfigError: as the SSD's own making.
        """
        self._name = ssd.name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "flashmob.isolated"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the parent, which then takes leave of all hosts.
            start_new_session=True,
        )
        # What is sent waits in the pipe for a process that stands still, and what the pipe does not take waits here.
        os.set_blocking(self._process.stdin.fileno(), False)  # type: ignore[union-attr]
        self._unsent = b""
        self._text = b""
        self._owed: deque[str] = deque()
        self._asked_s = 0.0
        # When the last snapshot was taken, by time.monotonic(): an old one may be told again.
        self.taken_s = 0.0
        self._last: Any = None
        # Rules that came while it had not answered to earlier ones.
        self._late_rules: list[str] | None = None
        # When it has had its time to leave; several that were told at once have the same time, not one after the other.
        self._deadline_s: float | None = None
        self._addresses: list[str] = []
        try:
            self._ask("make", ssd=ssd.model_dump(mode="json"), typed=ssd._typed, folder=folder and str(folder))
        except ServerEndedError as error:
            raise ConfigError(f"{error} before it served") from None
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def start(self) -> None:
        """Opens the doors.

        Raises:
            ConfigError: where one cannot be opened.
        """
        try:
            self._ask("start")
        except ServerEndedError as error:
            raise ConfigError(f"{error} when it opened its doors") from None

    def addresses(self) -> list[str]:
        """As `_core.Server.addresses`; what was known last where the process has ended."""
        return self._addresses

    def set_faults(self, rules: list[str]) -> None:
        """As `_core.Server.set_faults`.

        Raises:
            ConfigError: if the process does not answer at once; it takes the latest rules when it does.
            ServerEndedError: if it has ended.
        """
        self._late_rules = rules
        if "set_faults" not in self._owed:
            self._late_rules = None
            self._send("set_faults", rules=rules)
            if self._answer("set_faults", _LOOK_S) is not None:
                return
        raise ConfigError(
            f"{self._name}: its process ({self.pid}) does not answer; it takes the new faults when it does"
        )

    def stats(self) -> _core.ServerStats:
        """A snapshot; the last one again where the process does not answer at once, but soon without rates and verdict.

        Raises:
            ServerEndedError: if the process has ended.
        """
        if "stats" not in self._owed:
            self._asked_s = time.monotonic()
            self._send("stats")
        try:
            answer = self._answer("stats", _LOOK_S if self._last is not None else None)
        except ConfigError:
            # One that could not take its own snapshot goes on serving.
            if self._last is None:
                raise
            answer = None
        stats: _core.ServerStats
        if answer is not None:
            self._last = answer["stats"]
            self.taken_s = self._asked_s
            if self._late_rules is not None and "set_faults" not in self._owed:
                rules, self._late_rules = self._late_rules, None
                self._send("set_faults", rules=rules)
        elif (silent_s := time.monotonic() - self._asked_s) >= _SILENT_S:
            stats = _unknown(self._last, f"its process ({self.pid}) does not answer, for {silent_s:.0f} s")
            return stats
        stats = self._last
        return stats

    def leave(self, timeout_s: float = _LEAVE_S) -> None:
        """Has the process take leave of its hosts and end within so long, s, and does not wait for it."""
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + timeout_s
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]

    def stop(self) -> None:
        """Ends the process, which takes leave of its hosts first. Idempotent."""
        self.leave()
        assert self._deadline_s is not None
        try:
            self._process.wait(max(0.0, self._deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]

    def _ask(self, what: str, timeout_s: float | None = None, **more: Any) -> None:
        self._send(what, **more)
        if self._answer(what, timeout_s) is None:
            raise ConfigError(f"{self._name}: its process ({self.pid}) does not answer")

    def _send(self, what: str, **more: Any) -> None:
        self._unsent += json.dumps({"do": what, **more}).encode() + b"\n"
        self._owed.append(what)
        self._send_rest()

    def _send_rest(self) -> None:
        try:
            while self._unsent:
                sent = os.write(self._process.stdin.fileno(), self._unsent)  # type: ignore[union-attr]
                self._unsent = self._unsent[sent:]
        except BlockingIOError:
            pass
        except OSError:
            raise self._ended() from None

    def _answer(self, what: str, timeout_s: float | None) -> dict[str, Any] | None:
        """The answer to what was asked; None where there is none in time. Those that nobody waits for are left out."""
        while (answer := self._next_answer(timeout_s)) is not None:
            asked = self._owed.popleft()
            if asked != what:
                continue
            if "error" in answer:
                raise ConfigError(answer["error"])
            self._addresses = list(answer["addresses"])
            return answer
        return None

    def _next_answer(self, timeout_s: float | None) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        handle = self._process.stdout.fileno()
        while b"\n" not in self._text:
            takes_more = [self._process.stdin.fileno()] if self._unsent else []
            readable, writable, _ = select.select([handle], takes_more, [], timeout_s)
            if writable:
                self._send_rest()
            if not readable:
                if writable:
                    continue
                return None
            more = os.read(handle, 1 << 16)
            if not more:
                raise self._ended()
            self._text += more
        line, _, self._text = self._text.partition(b"\n")
        answer: dict[str, Any] = json.loads(line, object_hook=_Record)
        return answer

    def _ended(self) -> ServerEndedError:
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code < 0:
            try:
                how = f"was ended by {signal.Signals(-code).name}"
            except ValueError:
                how = f"was ended by signal {-code}"
        else:
            how = f"ended with exit code {code}"
        return ServerEndedError(f"{self._name}: its process ({self._process.pid}) {how}")


def _unknown(last: Any, why: str) -> Any:
    """What is left of a snapshot when time goes on and nobody says what happens: sums, but no rate and no verdict."""
    no_rates = dict.fromkeys(("iops", "read_iops", "write_iops", "read_bytes_per_s", "written_bytes_per_s"), 0.0)
    gone: dict[str, Any] = no_rates | dict.fromkeys(("queue_depth", "busy_share", "door_busy_share"), 0.0)
    gone["hosts"] = [_Record(host | no_rates) for host in last["hosts"]]
    gone["left"] = _Record(no_rates | {"count": 0})
    gone |= {"verdict": "NONE", "verdict_cause": why, "verdict_so_far": "NONE"}
    gone["verdict_so_far_cause"] = f"{why}; until then {last['verdict_so_far']}"
    return _Record(last | gone)


class _Record(dict[str, Any]):
    """A JSON object whose members are attributes, too, as those of the compiled module's structures are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __dir__(self) -> list[str]:
        return list(self)


class _Child:
    """The other end: serves one SSD until its input ends."""

    def __init__(self) -> None:
        self._server: _core.Server | None = None

    def run(self) -> NoReturn:
        # Nothing of Python's or a library's own may get between the answers.
        answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        signal.signal(signal.SIGTERM, _leave)
        try:
            for line in sys.stdin:
                if not line.endswith("\n"):
                    break  # The parent has left amid a request.
                answers.write(json.dumps(self._do(json.loads(line)), separators=(",", ":")) + "\n")
                answers.flush()
        except (BrokenPipeError, KeyboardInterrupt):
            pass
        finally:
            self._stop()
        sys.exit(0)

    def _stop(self) -> None:
        enforcer = threading.Timer(STOP_S, os._exit, (1,))
        enforcer.daemon = True
        enforcer.start()
        if self._server is not None:
            self._server.stop()

    def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        from flashmob.metrics import stats_record

        said: dict[str, Any] = {}
        try:
            if request["do"] == "make":
                self._make(request)
            assert self._server is not None
            if request["do"] == "start":
                self._server.start()
            if request["do"] == "set_faults":
                self._server.set_faults(request["rules"])
            if request["do"] == "stats":
                said["stats"] = stats_record(self._server.stats())
            said["addresses"] = self._server.addresses()
        except (ConfigError, OSError, MemoryError) as error:
            return {"error": str(error) or type(error).__name__}
        return said

    def _make(self, request: dict[str, Any]) -> None:
        from flashmob.lab import ServedSsd
        from flashmob.process import raise_descriptor_limit

        raise_descriptor_limit()
        ssd = ServedSsd.model_validate(request["ssd"])
        ssd._typed.update(request["typed"])
        _, self._server = ssd.server(Path(request["folder"]) if request["folder"] else None)


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    _Child().run()
