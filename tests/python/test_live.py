"""What served SSDs say: the live view on terminals of any width, lists, metrics, and the JSON log."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections import deque
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from flashmob import ConfigError, cli, isolated, registry
from flashmob.columns import fitting
from flashmob.json_log import JsonLog
from flashmob.live import Picture, View, door_lines, figure_lines, plain_line
from flashmob.metrics import prometheus_text, stats_record
from flashmob.metrics_door import MetricsEndpoint
from flashmob.registry import printable
from flashmob.serve import connect_hints
from flashmob.served import described, list_lines
from rich.console import Console
from rich.text import Text

NQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"
ADDRESSES = ("vfio-user:/tmp/flashmob/ssd0/cntrl", f"nvme-tcp:127.0.0.1:4420/{NQN}")


def figures(mean: float = 50_000.0) -> SimpleNamespace:
    return SimpleNamespace(mean_ns=mean, p50_ns=50_000, p99_ns=60_000, p999_ns=70_000)


def host(**changes: Any) -> SimpleNamespace:
    values = {"door": "nvme-tcp", "host": NQN, "controller_id": 1, "state": "ready", "queues": 4}
    values |= {"read_commands": 10, "write_commands": 5, "read_bytes": 5120, "written_bytes": 2560}
    return SimpleNamespace(**values | rates() | changes)


def rates(iops: float = 1500.5, read_iops: float = 1000.0, write_iops: float = 500.5) -> dict[str, float]:
    known = {"iops": iops, "read_iops": read_iops, "write_iops": write_iops}
    return known | {"read_bytes_per_s": 512 * read_iops, "written_bytes_per_s": 512 * write_iops}


def stats(**changes: Any) -> Any:
    values: dict[str, Any] = {"uptime_s": 12.5, "interval_s": 1.0, "hosts": [host()], **rates()}
    values |= {
        "leases": [],
        "left": SimpleNamespace(count=0, **rates(0, 0, 0)),
        "queue_depth": 3.25,
        "latency": figures(),
        "target": figures(49_000.0),
    }
    values |= {"lateness": figures(1_000.0), "verdict": "VALID", "verdict_cause": "", "completions": 15}
    values |= {"read_commands": 10, "write_commands": 5, "read_bytes": 5120, "written_bytes": 2560, "hosts_seen": 1}
    values |= {"total_latency": figures(), "total_lateness": figures(900.0), "lateness_max_ns": 45_000}
    values |= {"gap_count": 3, "gap_longest_ns": 24_000, "verdict_so_far": "VALID", "verdict_so_far_cause": ""}
    values |= {
        "error_bound": figures(2_000.0),
        "total_error_bound": figures(),
        "door_delay": figures(1_500.0),
        "total_door_delay": figures(),
        "busy_share": 0.5,
        "door_busy_share": 0.25,
        "backlog_share": 0.001,
    }
    values |= {"tolerance_share": 0.02, "tolerance_share_so_far": 0.02}
    values |= {"faults": [SimpleNamespace(rule="lose at=9", matched=20, injected=1)]}
    return SimpleNamespace(**values | changes)


def state(**changes: Any) -> dict[str, Any]:
    """What a server publishes, but for what the registry adds."""
    values = {"version": "0.1.0", "profile": "d7-ps1010", "nqn": NQN, "serial": "FM1", "addresses": list(ADDRESSES)}
    values |= {"started_s": 1.8e9, "faults_file": None, "interval_s": 1.0, "metrics": None, "json_log": None}
    return values | {"settings": {}, "stats": stats_record(stats(**changes))}


def text_of(view: View, width: int) -> str:
    return "\n".join(line.plain for line in figure_lines(view, width))


def test_what_the_view_says() -> None:
    strange = host(host="\x1b[31mred", state="fatal", door="", controller_id=7)
    view = View("ssd0", "d7-ps1010", ADDRESSES, stats(hosts=[host(), strange]))
    text = text_of(view, 200)
    assert "\x1b" not in text, "a host's name does not steer the terminal"
    words = ("ssd0", NQN, "depth 3.2", "VALID", "fatal", "1.500 kIOPS", "hit 1 of 20", "model 49.0 us", "p99.9 70.0 us")
    for word in words:
        assert word in text
    assert "none is attached" in text_of(View("b", "x", (), stats(hosts=[])), 80)
    assert "just now INVALID" in text_of(View("b", "x", (), stats(verdict="INVALID")), 80)
    assert "no news for 12 s" in text_of(View("b", "x", (), stats(), silent="no news for 12 s"), 80)
    assert [line.plain.strip() for line in door_lines(view)[1:]] == list(ADDRESSES)


def test_evidence_of_the_verdict() -> None:
    view = View("ssd0", "x", (), stats(verdict_so_far="VALID (lateness only)"))
    text = text_of(view, 120)
    for words in (
        "at most mean 2.00 us",
        "busy 50.0 %",
        "NVMe/TCP door 25.0 %",
        "left commands behind 0.10 %",
        "VALID (lateness only)",
    ):
        assert words in text
        assert words in plain_line(view)
    assert 'flashmob_valid{ssd="a"} 1\n' in prometheus_text({"a": view.stats})


@pytest.mark.parametrize(
    ("verdict", "valid", "lateness_only"),
    [("VALID", 1, 0), ("VALID (lateness only)", 1, 1), ("INVALID", 0, 0), ("NONE", -1, 0)],
)
def test_metrics_tell_the_verdicts_apart(verdict: str, valid: int, lateness_only: int) -> None:
    text = prometheus_text({"a": stats(verdict_so_far=verdict)})
    assert f'flashmob_valid{{ssd="a"}} {valid}\n' in text
    assert f'flashmob_valid_lateness_only{{ssd="a"}} {lateness_only}\n' in text


def test_a_verdict_says_how_near_it_is() -> None:
    """In the same words as a benchmark's, wherever it is read."""
    wide = stats(tolerance_share_so_far=1 / 6, verdict="VALID", tolerance_share=0.125)
    view = View("ssd0", "x", (), wide)
    assert "VALID (within 16.7 %)" in text_of(view, 80)
    assert "VALID (within 16.7 %)" in plain_line(view)
    assert 'flashmob_tolerance_share{ssd="a"} 0.166666667\n' in prometheus_text({"a": wide})
    hardly = View("ssd0", "x", (), stats(tolerance_share_so_far=14.31))
    assert "VALID (within a factor of 15.4)" in text_of(hardly, 80), "rounded up: it is a bound"
    late = View("ssd0", "x", (), stats(verdict_so_far="INVALID", tolerance_share_so_far=0.5, tolerance_share=0.125))
    assert "INVALID   (just now VALID (within 12.5 %))" in text_of(late, 80)
    known = state(tolerance_share_so_far=1 / 6) | {"name": "a", "pid": 1, "seen_s": 0.0}
    assert "VALID (within 16.7 %)" in list_lines([known], 80)[1].plain
    assert "verdict     VALID (within 16.7 %)" in described(known | {"settings": {"subsystem": {"namespaces": []}}})
    del known["stats"]["tolerance_share_so_far"]  # An older server's.
    assert "within" not in list_lines([known], 80)[1].plain


@pytest.mark.parametrize(
    "wrong",
    [
        {"stats": stats_record(stats()) | {"iops": "many"}},
        {"stats": stats_record(stats()) | {"hosts": 5}},
        {"stats": stats_record(stats()) | {"uptime_s": None}},
        {"stats": stats_record(stats()) | {"latency": []}},
        {"stats": {}},
        {"started_s": "yesterday"},
        {"started_s": 1e300},
        {"written_s": "now", "serial": 5, "stats": {"hosts": [{}]}},
    ],
)
def test_a_state_of_other_kinds_is_said_and_passed_over(
    wrong: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    good, strange = registry.claim("good"), registry.claim("strange")
    good.publish(state())
    strange.publish(state() | wrong)
    for command in ("ls", "ls --json", "top --once", "top --once --json"):
        words = command.split()
        assert cli.run(partial(cli.app, words, standalone_mode=True)) == 0
        said = capsys.readouterr()
        assert "good" in said.out
        assert f"strange: what process {os.getpid()} says of itself is not what this version" in said.err
        assert said.err.count("\n") == 1
    assert cli.run(partial(cli.app, ["info", "strange"], standalone_mode=True)) != 0
    assert "error: strange: what process" in capsys.readouterr().err
    good.release()
    strange.release()


@pytest.mark.parametrize("wrong", [{"addresses": 5}, {"addresses": [5]}, {"profile": 5}, {"pid": "x"}, {"stats": []}])
def test_a_state_without_the_least_is_none(wrong: dict[str, Any]) -> None:
    strange = registry.claim("strange")
    strange.publish(state() | wrong)
    assert registry.servers() == []
    strange.release()


def test_what_does_not_answer_is_not_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that stands still serves nobody: its last rates and verdict are not those of now."""
    monkeypatch.setattr(isolated, "_LOOK_S", 0.01)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as answers, os.fdopen(writing, "wb"), Path(os.devnull).open("wb") as asked:
        server = isolated.IsolatedServer.__new__(isolated.IsolatedServer)
        server._process = cast(Any, SimpleNamespace(pid=7, stdin=asked, stdout=answers))
        server._owed, server._text, server._unsent = deque(), b"", b""
        server._last = json.loads(json.dumps(stats_record(stats())), object_hook=isolated._Record)
        monkeypatch.setattr(isolated, "_SILENT_S", 1e9)
        assert server.stats().iops == 1500.5, "it may only be slow"
        monkeypatch.setattr(isolated, "_SILENT_S", 0.0)
        known = server.stats()
    assert (known.verdict, known.verdict_so_far, known.iops, known.completions) == ("NONE", "NONE", 0, 15)
    said = r"its process \(7\) does not answer, for \d+ s; until then VALID"
    assert re.fullmatch(said, known.verdict_so_far_cause)
    assert [host.read_iops for host in known.hosts] == [0]
    assert 'flashmob_valid{ssd="a"} -1\n' in prometheus_text({"a": known})


def test_an_answer_that_comes_late_is_no_answer_to_the_next_question() -> None:
    """Of a process that stood still while its rules were changed, and then could not take one snapshot."""
    known = stats_record(stats())
    reading, writing = os.pipe()
    with (
        os.fdopen(reading, "rb") as answers,
        os.fdopen(writing, "wb", buffering=0) as child,
        Path(os.devnull).open("wb") as asked,
    ):
        server = isolated.IsolatedServer.__new__(isolated.IsolatedServer)
        server._process = cast(Any, SimpleNamespace(pid=7, stdin=asked, stdout=answers))
        server._name, server._owed, server._text, server._unsent = "a", deque(), b"", b""
        server._late_rules = None
        server._last = json.loads(json.dumps(known), object_hook=isolated._Record)
        with pytest.raises(ConfigError, match="does not answer"):
            server._ask("set_faults", 0.01, rules=[])
        late = {"addresses": []}
        child.write(json.dumps(late).encode() + b"\n")
        child.write(json.dumps(late | {"stats": known | {"iops": 7.0}}).encode() + b"\n")
        assert server.stats().iops == 7.0
        child.write(b'{"error": "no memory"}\n')
        assert server.stats().iops == 7.0, "the last one again"
        child.write(json.dumps(late).encode() + b"\n")
        server._ask("set_faults", 10.0, rules=[])


@pytest.mark.parametrize("width", [60, 80, 100])
def test_figures_fit_and_names_are_whole(width: int) -> None:
    wide = stats(
        hosts=[host(read_iops=9.999e6, write_iops=9.999e6, read_bytes_per_s=9.999e9, written_bytes_per_s=9.999e9)],
        completions=10**15,
        iops=99.99e6,
        read_bytes_per_s=99.99e9,
        written_bytes_per_s=99.99e9,
        queue_depth=65535.5,
    )
    for line in figure_lines(View("ssd0", "d7-ps1010", ADDRESSES, wide), width):
        assert line.cell_len <= width or NQN in line.plain
    assert NQN in text_of(View("ssd0", "d7-ps1010", ADDRESSES, wide), width)


def test_columns_are_left_out_rather_than_cut() -> None:
    rows = [[Text("a"), Text("process 12345"), Text("x" * 30)], [Text("bcd"), Text("p"), Text("y")]]
    assert [line.plain for line in fitting(rows, 80)] == [f"a    process 12345  {'x' * 30}", "bcd  p              y"]
    assert [line.plain for line in fitting(rows, 40)] == ["a    process 12345", "bcd  p"]
    assert [line.plain for line in fitting([[Text("x" * 50), Text("y")]], 20)] == ["x" * 50]


def test_how_a_linux_host_connects() -> None:
    assert connect_hints(ADDRESSES) == [f"nvme connect -t tcp -a 127.0.0.1 -s 4420 -n {NQN}"]
    assert connect_hints([f"nvme-tcp:[::1]:1/{NQN}"]) == [f"nvme connect -t tcp -a ::1 -s 1 -n {NQN}"]
    assert connect_hints([f"nvme-tcp:0.0.0.0:4420/{NQN}"]) == []


class Screen:
    """As much of a terminal as the picture needs: it wraps, scrolls, and follows cursor sequences."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows = [""] * height
        self.scrolled: list[str] = []
        self.row = self.column = 0
        self.written = 0

    def down(self) -> None:
        self.row += 1
        if self.row == self.height:
            self.scrolled.append(self.rows.pop(0))
            self.rows.append("")
            self.row -= 1

    def feed(self, text: str) -> None:
        for part in re.findall(r"\x1b\[\d*[A-Za-z]|\x1b\[[\d;]*m|[^\x1b]", text):
            count = int(re.sub(r"\D", "", part) or 1) if part[0] == "\x1b" else 0
            if part.endswith("m") and count:
                continue
            if part.endswith("A") and count:
                self.row = max(0, self.row - count)
            elif part.endswith("B") and count:
                self.row = min(self.height - 1, self.row + count)
            elif part.endswith("K") and count:
                self.rows[self.row] = ""
            elif part.endswith("J") and count:
                self.rows[self.row :] = [""] * (self.height - self.row)
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.down()
            else:
                if self.column == self.width:
                    self.down()
                    self.column = 0
                row = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = row[: self.column] + part + row[self.column + 1 :]
                self.column += 1
                self.written += 1

    def text(self) -> list[str]:
        return [row.rstrip() for row in (*self.scrolled, *self.rows) if row.strip()]


def drawn(width: int, height: int = 20) -> tuple[Console, Screen, Picture]:
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=width, height=height, color_system=None)
    return console, Screen(width, height), Picture(console)


def shown(console: Console, screen: Screen) -> Screen:
    file = console.file
    assert isinstance(file, StringIO)
    screen.feed(file.getvalue().replace("\r\n", "\n").replace("\n", "\r\n"))
    file.seek(0)
    file.truncate()
    return screen


@pytest.mark.parametrize("width", [20, 60, 80])
def test_a_picture_is_drawn_in_place(width: int) -> None:
    console, screen, picture = drawn(width)
    for turn in range(5):
        picture.draw([Text(f"turn {turn}"), Text(NQN), Text(f"rate {10**turn}")])
    whole = "".join(shown(console, screen).text())
    assert whole == f"turn 4{NQN}rate 10000"
    before = screen.written
    picture.draw([Text("turn 5"), Text(NQN), Text("rate 10000")])
    assert shown(console, screen).written - before == len("turn 5"), "what has not changed is not written again"
    picture.say(["stays"])
    picture.draw([Text("turn 6"), Text(NQN * 2)])
    assert "".join(shown(console, screen).text()) == f"staysturn 6{NQN * 2}"


def test_a_picture_higher_than_the_terminal() -> None:
    console, screen, picture = drawn(40, 10)
    for turn in range(3):
        picture.draw([Text(f"line {index} turn {turn}") for index in range(30)])
    text = shown(console, screen).text()
    assert text == [*(f"line {index} turn 2" for index in range(7)), "23 more lines: make the window higher"]


@pytest.fixture
def one_served() -> Any:
    held = registry.claim("ssd0")
    held.publish(state())
    yield held
    held.release()


def run(*arguments: str) -> int:
    return cli.run(lambda: cli.app(list(arguments), standalone_mode=True))


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_ls(columns: str, one_served: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert run("ls") == 0
    lines = capsys.readouterr().out.splitlines()
    heading, row, *doors = lines
    assert heading.startswith("name  process")
    assert row.startswith(f"ssd0  {os.getpid()}")
    assert [line.strip() for line in doors] == list(ADDRESSES)
    assert max(len(heading), len(row)) <= int(columns)
    if int(columns) >= 80:
        assert heading.split() == ["name", "process", "hosts", "verdict", "profile", "up", "rate"]
        assert row.index("VALID") == heading.index("verdict")


def test_ls_says_why(one_served: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    cause = "requests were fetched up to 5 ms after their doorbell, because the machine took the core away"
    one_served.publish(state(verdict_so_far="INVALID", verdict_so_far_cause=cause))
    assert run("ls") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "INVALID" in lines[1]
    why = lines[2 : -len(ADDRESSES)]
    assert " ".join(line.strip() for line in why) == cause
    assert all(len(line) <= 60 for line in why)
    assert run("ls", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["verdict_so_far_cause"] == cause


def test_ls_and_top_as_json(one_served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ls", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["nqn"], listed["hosts"]) == ("ssd0", NQN, [NQN])
    assert run("top", "--json", "--once") == 0
    (record,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert record["stats"]["latency"]["p99_ns"] == 60_000


def test_top_once_is_a_line_an_ssd(one_served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    other = registry.claim("b")
    other.publish(state(hosts=[]))
    assert run("top", "--once") == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("b 1.500 kIOPS")
    assert "0 hosts" in first
    assert second.endswith("1 host  VALID")
    assert run("top", "ssd0", "--once") == 0
    assert capsys.readouterr().out.splitlines() == [second]
    other.release()


STEERS = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n\u202e\udcff"


def steering(value: Any) -> Any:
    """The same with an escape sequence in every text."""
    if isinstance(value, str):
        return value + STEERS
    if isinstance(value, list):
        return [steering(one) for one in value]
    return {key: steering(one) for key, one in value.items()} if isinstance(value, dict) else value


def test_a_state_file_does_not_steer_the_terminal(one_served: Any, capfd: pytest.CaptureFixture[str]) -> None:
    published = state(verdict_so_far_cause="the machine took the core away")
    published |= {"metrics": "127.0.0.1:9000", "json_log": "/log", "faults_file": "/faults"}
    published["settings"] = {"subsystem": {"namespaces": [{"size_bytes": 4096, "media": "memory"}]}}
    one_served.publish(steering(published))
    for arguments in (
        ("ls",),
        ("ls", "--json"),
        ("top", "--once"),
        ("top", "--json", "--once"),
        ("info", "ssd0"),
        ("faults", "ssd0", "delay on=read delay=1ms"),
        ("bench", "ssd0", "--runtime", "1s"),
        ("serve", "d7-ps1010", "--name", "ssd0"),
    ):
        code = run(*arguments)
        said = capfd.readouterr()
        assert code == (0 if arguments[0] in ("ls", "top") else 2), (arguments, said)
        assert all(char.isprintable() for char in (said.out + said.err).replace("\n", "")), (arguments, said)
        assert said.out + said.err, arguments
    assert "?]0;owned??[2J?31m" in printable(STEERS)


def test_names_that_nobody_serves(one_served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("top", "nope") == 2
    assert "no SSD called nope is served: there is ssd0" in capsys.readouterr().err
    assert run("info", "ssd1") == 2
    assert "'ssd1' is not known, neither as a profile nor as an SSD that you serve (did" in capsys.readouterr().err
    one_served.release()
    assert run("ls") == 0
    assert "no SSD is served by you" in capsys.readouterr().out
    assert run("ls", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run("top") == 0
    assert "no SSD is served by you" in capsys.readouterr().out


def test_json_of_the_other_commands(
    tmp_path: Path, one_served: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*arguments: str) -> Any:
        assert run(*arguments, "--json") == 0
        return json.loads(capsys.readouterr().out)

    assert set(answer("version")) == {"version", "compiled_module", "python"}
    findings = answer("doctor")
    assert {"cores", "memory"} <= {finding["name"] for finding in findings}
    assert set(findings[0]) == {"name", "state", "found", "buys", "fix"}
    identify = answer("info", "d7-ps1010", "--size", "1M", "--media", "generated")
    assert identify["profile"] == "d7-ps1010"
    assert identify["namespaces"]["1"]["nsze"] == 2048
    assert isinstance(identify["controller"]["sn"], str)
    monkeypatch.chdir(tmp_path)
    one_served.publish(state() | {"faults_file": str(tmp_path / "rules")})
    assert answer("faults", "rules", "error at=1") == {
        "file": str(tmp_path / "rules"),
        "rules": ["error at=1"],
        "ssds": ["ssd0"],
    }
    # A served SSD's own name stands for its file; ./NAME is a file all the same.
    assert answer("faults", "ssd0", "lose at=2") == {
        "file": str(tmp_path / "rules"),
        "rules": ["lose at=2"],
        "ssds": ["ssd0"],
    }
    assert (tmp_path / "rules").read_text(encoding="utf-8") == "lose at=2\n"
    assert answer("faults", "./ssd0", "error at=1")["file"] == str(tmp_path / "ssd0")
    one_served.publish(state())
    assert run("faults", "ssd0", "error at=1") == 2
    assert "ssd0 is served without a file of faults; start it with --faults-file FILE" in capsys.readouterr().err
    assert run("faults", "sdd0", "error at=1") == 2
    assert 'no SSD called sdd0 is served (did you mean "ssd0"?); a new file of that name is ./sdd0' in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "sdd0").exists()
    assert run("bench", "sdd0") == 2
    assert '(did you mean "ssd0"?)' in capsys.readouterr().err
    assert run("info", "vfio-user:/run/ssd0") == 2
    assert "vfio-user:/run/ssd0 is the door of another process" in capsys.readouterr().err
    assert run("faults", "./other") == 0
    assert "no SSD that you serve looks at it" in capsys.readouterr().err


def test_prometheus_text() -> None:
    hostile = host(host='a"b\\c\nd', controller_id=2)
    text = prometheus_text({"ssd0": stats(hosts=[host(), hostile]), "ssd1": stats(verdict_so_far="NONE", hosts=[])})
    assert text.endswith("\n")
    assert 'flashmob_read_commands_total{ssd="ssd0"} 10\n' in text
    assert 'flashmob_valid{ssd="ssd0"} 1\n' in text
    assert 'flashmob_valid{ssd="ssd1"} -1\n' in text
    assert 'flashmob_faults_injected_total{ssd="ssd0",rule="lose at=9"} 1\n' in text
    assert 'flashmob_latency_seconds{ssd="ssd0",figure="p99"} 6e-05\n' in text
    assert 'host="a\\"b\\\\c\\nd",controller="2"} 4\n' in text
    names = [line.split("{")[0] for line in text.splitlines() if not line.startswith("#")]
    for name in set(names):
        assert text.count(f"# TYPE {name} ") == 1
        assert text.count(f"# HELP {name} ") == 1
        assert ("counter" in text.split(f"# TYPE {name} ")[1].splitlines()[0]) == name.endswith("_total")


def test_metrics_endpoint() -> None:
    endpoint = MetricsEndpoint("127.0.0.1:0")
    try:
        endpoint.update({"ssd0": stats()})
        with urllib.request.urlopen(endpoint.url, timeout=5) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b'flashmob_iops{ssd="ssd0"} 1500.5' in answer.read()
        # A loop that stands still takes no snapshots: the last one is older with each scrape.
        endpoint.update({"ssd0": stats()}, {"ssd0": time.monotonic() - 30})
        with urllib.request.urlopen(endpoint.url, timeout=5) as answer:
            age = re.search(
                r'^flashmob_snapshot_age_seconds\{ssd="ssd0"\} (\S+)$', answer.read().decode(), re.MULTILINE
            )
        assert age is not None
        assert 30 <= float(age[1]) < 60
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(endpoint.url + "x", timeout=5)
        with pytest.raises(ConfigError, match="cannot listen"):
            MetricsEndpoint(endpoint.url.removeprefix("http://").removesuffix("/metrics"))
    finally:
        endpoint.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(endpoint.url, timeout=5)


def test_json_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.jsonl"
    for _ in range(2):
        log = JsonLog(str(path), StringIO())
        log.write("stats", ssd="ssd0", **stats_record(stats()))
        log.close()
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(records) == 2, "a log is appended to"
    assert records[0]["hosts"][0]["host"] == NQN
    assert records[0]["latency"]["p99_ns"] == 60_000
    assert records[0]["event"] == "stats"
    out = StringIO()
    log = JsonLog("-", out)
    log.write("ready")
    log.close()
    assert json.loads(out.getvalue())["event"] == "ready"
    full = JsonLog("/dev/full", out)
    for _ in range(3):
        full.write("stats")
    full.close()
    assert capsys.readouterr().err.count("records are missing") == 1
    with pytest.raises(ConfigError, match="JSON log"):
        JsonLog(str(tmp_path / "nope" / "log"), out)
