"""flashmob bench as a process: what it leaves behind where its output cannot be written, shown or is not wanted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from flashmob import Result, cli

RUN = ["bench", "d7-ps1010", "--clock", "virtual", "--ios", "2000", "--queues", "1", "--qd", "4", "--size", "1M"]


def flashmob(*arguments: str, stdout: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    with Path(stdout or os.devnull).open("w", encoding="utf-8") as sink:
        return subprocess.run(
            [sys.executable, "-m", "flashmob", *arguments],
            stdout=sink if stdout else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=120,
            check=False,
            env=os.environ | environment,
        )


def test_a_full_output_leaves_the_result_and_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    done = flashmob(*RUN, "--json", str(path), stdout="/dev/full")
    assert done.returncode == 1
    assert Result.load(path).ios >= 2000
    expected = f"error: the report could not be printed (No space left on device); the result is in {path}\n"
    assert done.stderr == expected


def test_a_full_disk_still_gives_the_report() -> None:
    done = flashmob(*RUN, "--json", "/dev/full")
    assert done.returncode == 1
    assert "verdict" in done.stdout
    assert done.stderr == "error: the result could not be written to /dev/full (No space left on device)\n"
    done = flashmob(*RUN, "--json", "-", stdout="/dev/full")
    assert done.returncode == 1
    assert done.stderr.endswith("could not be written to standard output (No space left on device)\n")


def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    done = flashmob(*RUN, "--json", str(path), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "1 queue x 4 in flight" in done.stdout
    assert "?" not in done.stdout
    assert json.loads(path.read_text(encoding="utf-8"))["ios"] >= 2000


def test_other_commands_at_a_full_output() -> None:
    done = flashmob("version", stdout="/dev/full")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error: ")


def test_nothing_is_left_of_the_check_whether_a_file_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    assert flashmob("bench", "d7-ps1010", "--qd", "0", "--json", str(path)).returncode == 2
    assert not path.exists()
    path.write_text("mine", encoding="utf-8")
    assert flashmob("bench", "d7-ps1010", "--qd", "0", "--json", str(path)).returncode == 2
    assert path.read_text(encoding="utf-8") == "mine"


def test_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(lambda: cli.app(["--version"], standalone_mode=True)) == 0
    option = capsys.readouterr().out
    assert cli.run(lambda: cli.app(["version"], standalone_mode=True)) == 0
    assert capsys.readouterr().out == option


def test_the_shell_completes_profiles_and_options() -> None:
    def complete(words: str) -> list[str]:
        code = "import sys; sys.argv[0] = 'flashmob'; from flashmob.cli import main; main()"
        environment = {"_FLASHMOB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | environment,
        )
        return done.stdout.split()

    assert complete("flashmob bench d7") == ["d7-ps1010"]
    assert complete("flashmob profiles show d7") == ["d7-ps1010"]
    assert complete("flashmob be") == ["bench"]
    assert "--queue-entries" in complete("flashmob bench --que")


def test_verification_that_was_asked_for_must_happen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a store whose content is known there is nothing to compare with.
    monkeypatch.setattr("flashmob.runner.check_fit", lambda *_: None)
    arguments = [*RUN, "--no-fill", "--verify", "100"]
    assert cli.run(lambda: cli.app(arguments, standalone_mode=True)) == 1
    assert "NOT VERIFIED: " in capsys.readouterr().out
    assert cli.run(lambda: cli.app(arguments[:-2], standalone_mode=True)) == 0


def test_a_smaller_store_than_the_profiles_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [argument for argument in RUN if argument not in ("--size", "1M")]
    assert cli.run(lambda: cli.app(arguments, standalone_mode=True)) == 0
    assert "store         1 GiB of the profile's" in capsys.readouterr().out
    assert cli.run(lambda: cli.app(RUN, standalone_mode=True)) == 0
    assert "store " not in capsys.readouterr().out
