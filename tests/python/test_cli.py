"""The command line where it needs no device: usage errors, profiles, plots, the doctor."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from flashmob import cli, doctor
from flashmob.bench_cli import BenchCommand
from flashmob.given import SHORT_NAMES
from flashmob.options import BenchOptions
from flashmob.serve_cli import ServeCommand
from flashmob.usage import Command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Document = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines do not wrap, so that tests can look for sentences."""
    monkeypatch.setenv("COLUMNS", "250")


def flashmob(*arguments: str) -> int:
    """Runs the command as the console script does and returns its exit code."""
    return cli.run(lambda: cli.app(list(arguments), standalone_mode=True))


def test_help_shows_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert flashmob("--help") == 0
    text = capsys.readouterr().out
    for command in ("bench", "serve", "info", "profiles", "plot", "doctor", "demo", "sweep", "version"):
        assert command in text


@pytest.mark.parametrize("group", [[], ["gpu"]])
def test_no_command_shows_the_help_and_nothing_else(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert flashmob(*group) == 2
    captured = capsys.readouterr()
    assert "Usage: " in captured.out + captured.err
    assert "error" not in captured.err


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_stream_is_no_error(
    closed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"sys.{closed}", None)
    assert flashmob("version") == 0
    for command in ("ls", "top --once", "doctor", "profiles", "profiles show d7-ps1010", "explain d7-ps1010"):
        assert (command, flashmob(*command.split())) == (command, 0)
        assert (command, flashmob(*command.split(), "--json")) == (command, 0)
    assert flashmob("profiles", "show", "d7-ps1010", "--toml") == 0
    assert flashmob("nothing") == 2
    assert (closed == "stdout") == ("nothing is not a command" in capsys.readouterr().err)


def test_a_result_for_a_closed_output_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout", None)
    for command in ("bench d7-ps1010 --json -", "gpu run mean --json -"):
        assert flashmob(*command.split()) == 2
        said = capsys.readouterr().err
        assert said == "error: --json - is standard output, and that is closed; leave it open, or name a file\n"


def test_an_error_that_cannot_be_shown_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr("sys.stderr", full)
        assert flashmob("nothing") == 2
        with suppress(OSError):  # What has no taker is not flushed again.
            full.close()


@pytest.mark.parametrize("jobs", ["0", "1.5", "many"])
def test_numbers_are_refused_in_our_words(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert flashmob("sweep", "--jobs", jobs) == 2
    assert f"--jobs {jobs} is not possible: use " in capsys.readouterr().err


def test_bench_help_shows_every_option_of_the_issue(capsys: pytest.CaptureFixture[str]) -> None:
    assert flashmob("bench", "--help") == 0
    text = capsys.readouterr().out
    options = "rw bs qd queues runtime ramp size media units workers rate requesters ios verify no-data clock seed set"
    options += " copy-engine"
    for option in [*options.split(), "trace", "trace-format", "as-fast", "json", "no-fill", "queue-entries", "cores"]:
        assert f"--{option} " in text


def test_help_says_what_holds_where_an_option_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert flashmob("bench", "--help") == 0
    text = capsys.readouterr().out
    defaults = BenchOptions()
    for field in ("rw", "distribution", "queue_depth", "queues", "threads", "arrivals", "clock", "trace_format"):
        option = next((short for short, long in SHORT_NAMES.items() if long == field), field).replace("_", "-")
        (line,) = [line for line in text.splitlines() if f" --{option} " in line]
        assert f"[default: {getattr(defaults, field)}]" in line
    assert f"[default: {defaults.verify_percent:g}]" in text
    assert f"[default: {defaults.block_sizes[0][0]}]" in text
    for command, default in (("serve", "1s"), ("gpu run", "cached"), ("gpu run", "kernel"), ("demo", "out")):
        assert flashmob(*command.split(), "--help") == 0
        assert f"[default: {default}]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "nope"], "'nope' is not known, neither as a profile nor as an SSD that you serve"),
        (["bench", "d7-ps1010", "--qd", "--queues", "4"], "--qd has no value; write --qd N"),
        (["faults", "nope", "error"], "no SSD called nope is served; a new file of that name is ./nope"),
        (["bench", "unlimited", "--set", "engine.sms=4"], "--set engine.sms is for the GPU engine"),
        (["info", "unlimited", "--set", "engine.sms=4"], "engine.sms is for the GPU engine, and would be ignored"),
        (["explain", "unlimited", "--set", "engine.sms=4"], "engine.sms is for the GPU engine, and would be ignored"),
        (["bench", "unlimited", "--engine", "gpu", "--set", "engine.units=2"], "engine.units is for the host's engine"),
        (["bench", "unlimited", "--no-data", "--no-fill"], "--no-fill is about data, but --no-data moves none"),
        (
            ["bench", "unlimited", "--set", "engine.move_data=false", "--verify", "1"],
            "--verify 1 needs data, but engine.move_data = false moves none",
        ),
        (["bench", "./nope.toml"], "cannot be read"),
        (["bench", "unlimited", "--rw", "sideways"], "--rw sideways is not possible: use 'read'"),
        (["bench", "unlimited", "--bs", "4q"], "--bs 4q is not possible: use a size"),
        (["bench", "unlimited", "--bs", "500"], "multiples of 512"),
        (["bench", "unlimited", "--qd", "0"], "--qd 0 is not possible: use at least 1"),
        (["bench", "unlimited", "--queues", "5000"], "--queues 5000 is not possible"),
        (["bench", "unlimited", "--qd", "1024", "--queue-entries", "1024"], "at least 1025"),
        (["bench", "unlimited", "--runtime", "5"], "5s"),
        (["bench", "unlimited", "--verify", "101"], "--verify 101 is not possible: use a percentage"),
        (["bench", "unlimited", "--no-data", "--verify", "5"], "--no-data"),
        (["bench", "unlimited", "--distribution", "zipf"], "zipf:THETA"),
        (["bench", "unlimited", "--clock", "cuckoo"], "'real' or 'virtual'"),
        (["bench", "unlimited", "--set", "timing.modle=none"], 'did you mean "timing.model"'),
        (["bench", "unlimited", "--set", "x"], "'='"),
        (["bench", "unlimited", "--size", "-1"], "--size -1 is not possible"),
        (["bench", "unlimited", "--media", "floppy"], "--media floppy is not possible: use memory"),
        (["bench", "unlimited", "--seed", "x"], "--seed x is not possible"),
        (["bench", "unlimited", "--cores", "x"], "core numbers"),
        (["bench", "unlimited", "--json", "/nowhere/at/all.json"], "cannot be written"),
        (["profiles", "show", "nope"], "is not known"),
        (["plot", "missing.json", "-o", "x.png"], "cannot be read"),
        (["demo", "--media", "memory"], "cow:FILE"),
        (["demo", "--media", "cow:/nowhere/at/all"], "not a readable file"),
        (["info", "nope"], "is not known"),
        (["info", "unlimited", "--size", "foo"], "--size foo is not possible"),
        (["plot", "/nonexistent.json"], "/nonexistent.json: cannot be read (No such file or directory); give"),
        (["bench", "unlimitedd"], '(did you mean "unlimited"?); `flashmob profiles`'),
        (["bench", "unlimited", "--size", "900T"], "--size 900T is not possible: use at most 64TiB\n"),
        (["bench", "d7-ps1010", "--set", "timing.read_latency_ns=2h"], "is not possible: use at most 1h\n"),
        (["serve", "unlimited", "--size", "900T", "--tcp", "0"], "--size 900T is not possible: use at most 64TiB\n"),
        (["serve", "nope"], "error: profile 'nope' is not known"),
        (["serve", "nope", "--interval", "5", "--tls-key", "/nowhere"], "error: profile 'nope' is not known"),
        (["bench", "nope", "--json", "/"], "error: 'nope' is not known"),
        (["sweep", "--out", ""], "error: --out '' is not possible: give it a value, or leave it out\n"),
        (["demo", "--out="], "error: --out '' is not possible"),
        (["plot", "x.json", "-o", ""], "error: --output '' is not possible"),
        (["plot", ""], "error: RESULT.json '' is not possible: give it a value\n"),
        (["gpu", "check", "--out", ""], "error: --out '' is not possible"),
        (["gpu", "figures", "--out", ""], "error: --out '' is not possible"),
        (["gpu", "serve", "d7-ps1010", "--socket", ""], "error: --socket '' is not possible: give it a value\n"),
        (["gpu", "run", "mean", "--json", ""], "error: --json '' is not possible"),
        (["faults", "ssd0", ""], "error: RULE '' is not possible"),
    ],
)
def test_mistakes_exit_with_2_and_one_line(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert flashmob(*arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("arguments", [["bench"], ["bench", "unlimited", "--wrong"], ["wrong"], ["plot"]])
def test_unknown_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert flashmob(*arguments) == 2
    assert capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert flashmob("version") == 0
    assert capsys.readouterr().out.startswith("flashmob ")


def test_doctor_always_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert flashmob("doctor") == 0
    text = capsys.readouterr().out
    findings = doctor.examine()
    assert len(findings) >= 12
    for finding in findings:
        assert finding.name in text
        assert finding.found
        assert finding.buys
        assert finding.state in ("yes", "partly", "no")


def test_plot_of_one_result_and_of_a_series(
    tmp_path: Path, result_document: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    paths = []
    for index, depth in enumerate((1, 8, 64)):
        document = result_document(options={"queues": 4, "queue_depth": depth, "requesters": 0}, iops=1e5 * depth)
        paths.append(str(tmp_path / f"{index}.json"))
        Path(paths[-1]).write_text(json.dumps(document), encoding="utf-8")
    assert flashmob("plot", paths[0], "-o", str(tmp_path / "one.png")) == 0
    assert flashmob("plot", *paths, "-o", str(tmp_path / "series.svg")) == 0
    assert "series.svg" in capsys.readouterr().out
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "series.svg").read_text(encoding="utf-8")
    assert "Bandwidth" in drawn
    assert "Distribution of latencies" in drawn
    assert flashmob("plot", *paths, "-o", str(tmp_path / "series.bmp")) == 2


def test_equal_results_give_equal_figures(tmp_path: Path, result_file: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg"):
        assert flashmob("plot", str(result_file), "-o", str(tmp_path / name)) == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=30))
def test_fuzz_set_strings(capsys: pytest.CaptureFixture[str], text: str) -> None:
    for assignment in (text, f"timing.read_iops={text}", f"{text}=1"):
        assert flashmob("profiles", "show", "d7-ps1010", f"--set={assignment}") in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bench"], "PROFILE|NAME|DOOR is missing; write flashmob bench PROFILE|NAME|DOOR; see flashmob bench --help"),
        (["bench", "x", "--cloc", "y"], '--cloc is not an option of flashmob bench (did you mean "--clock"?); see'),
        (["bench", "x", "--qd"], "--qd has no value; write --qd N; see flashmob bench --help"),
        (["benhc"], 'benhc is not a command of flashmob (did you mean "bench"?); see flashmob --help'),
        (["profiles", "foo"], "foo is not a command of flashmob profiles; see flashmob profiles --help"),
        (["bench", "x", "more"], "more is more than flashmob bench takes; leave it out; see flashmob bench --help"),
        (["sweep", "--jobs", "x"], "--jobs x is not possible: "),
        (["sweep", "--jobs=0"], "--jobs=0 is not possible: "),
    ],
)
def test_what_the_parser_refuses_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flashmob(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {sentence}")
    assert captured.err.count("\n") == 1


def test_top_as_json_of_nothing_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert flashmob("top", "--json") == 0
    assert capsys.readouterr().out == ""


def test_every_command_refuses_empty_values() -> None:
    def leaves(group: Any) -> Iterator[Any]:
        for command in group.commands.values():
            yield from leaves(command) if hasattr(command, "commands") else [command]

    assert {type(command).__name__ for command in leaves(typer.main.get_command(cli.app))} == {
        "BenchCommand",
        "Command",
        "ExplainCommand",
        "ServeCommand",
    }
    assert issubclass(BenchCommand, Command)
    assert issubclass(ServeCommand, Command)
