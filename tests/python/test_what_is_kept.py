"""What a command must not destroy, hide or swallow: files that it reads, secrets, variables of others, Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import flashmob
import pytest
from flashmob import ConfigError, cli
from flashmob.faults import write_rules
from flashmob.lab import checked_lab
from flashmob.profiles import load_profile

PROFILE = "[timing]\nread_iops = '1M'\n"


def refused(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.run(lambda: cli.app(command.split(), standalone_mode=True)) == 2
    return capsys.readouterr().err


def test_results_do_not_replace_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(PROFILE, encoding="utf-8")
    Path("image").write_bytes(bytes(8192))
    Path("same").symlink_to("image")
    Path("t.csv").write_text("128166372003061629,hm,0,Read,0,4096,1\n", encoding="utf-8")
    for command, words in (
        ("bench ./mine.toml --clock virtual --json mine.toml", "--json mine.toml is what ./mine.toml names"),
        ("bench unlimited --clock virtual --media cow:image --json same", "--json same is what media cow:"),
        ("bench unlimited --clock virtual --trace t.csv --json ./t.csv", "--json ./t.csv is what --trace names"),
        ("serve unlimited --tcp 0 --media file:image --json-log image", "--json-log image is what media file:image"),
        ("serve unlimited --tcp 0 --faults-file r --json-log r", "--json-log r is what faults_file names"),
    ):
        assert words in refused(command, capsys)
    assert Path("mine.toml").read_text(encoding="utf-8") == PROFILE
    assert Path("image").read_bytes() == bytes(8192)


def test_rules_replace_rules_alone(tmp_path: Path) -> None:
    file = tmp_path / "guest.img"
    for content in (b"\x00" * 4096, PROFILE.encode(), b"{}"):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match="is no file of rules, which begin with one of error, delay"):
            write_rules(file, [])
        assert file.read_bytes() == content
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is no file of rules"):
        write_rules(tmp_path / "pipe", ["error"])
    # A mistake in a file of rules is what one wants to mend.
    for text in ("", "# none\n\n", "error on=nothing\n", "eror on=read\n", "\ufefflose at=9\n"):
        file.write_text(text, encoding="utf-8")
        write_rules(file, ["lose at=1"])
        assert file.read_text(encoding="utf-8") == "lose at=1\n"


@pytest.mark.parametrize("where", ["ssd", "hosts", "missing"])
def test_errors_of_a_lab_show_no_secret(where: str) -> None:
    secret = "DHHC-1:00:" + "ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n" + ":"
    host = {"nqn": "nqn.2014-08.org.nvmexpress:a", "key": secret}
    ssd: dict[str, Any] = {"profile": "unlimited", "tcp": "0", "hosts": [host]}
    labs: dict[str, dict[str, Any]] = {
        "ssd": {"ssd": ssd},
        "hosts": {"ssd": [ssd | {"hosts": host}]},
        "missing": {"ssd": [ssd | {"hosts": [{"key": secret}]}]},
    }
    with pytest.raises(ConfigError) as error:
        checked_lab(labs[where], "lab.toml")
    assert "ia6z" not in str(error.value)
    assert "UWj4" not in str(error.value)


def test_a_lab_names_its_own_faults(tmp_path: Path) -> None:
    lab = checked_lab({"ssd": [{"profile": "d7-ps1010", "tcp": "0", "faults": ["bogus"]}]}, "lab.toml")
    with pytest.raises(ConfigError, match=r"^ssd0: faults = "):
        lab.ssd[0].server(tmp_path)


def test_an_editors_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbf" + PROFILE.encode())
    assert load_profile(tmp_path / "mine.toml").name == "mine"


def test_misuse_of_python_is_one_sentence() -> None:
    for wrong in (
        lambda: flashmob.Ssd("unlimited", media=1),  # type: ignore[arg-type]
        lambda: flashmob.Ssd("unlimited", faults=[1]),  # type: ignore[list-item]
        lambda: flashmob.bench("unlimited", media=Path("x")),  # type: ignore[arg-type]
        lambda: flashmob.bench("unlimited", faults=[None]),  # type: ignore[list-item]
    ):
        with pytest.raises(ConfigError, match="is not possible"):
            wrong()


def run(*arguments: str | bytes, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flashmob", *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=60, check=False)


def test_variables_of_others_hide_nothing(tmp_path: Path) -> None:
    assert "d7-ps1010" in run("profiles", COLUMNS="0").stdout
    load = "bench unlimited --clock virtual --ios 100 --size 1M --json x.json"
    assert run(*load.replace("x.json", str(tmp_path / "x.json")).split()).returncode == 0
    drawn = run(
        "plot", str(tmp_path / "x.json"), "-o", str(tmp_path / "x.svg"), MPLBACKEND="module://not_there.backend"
    )
    assert drawn.returncode == 0, drawn.stderr


def test_names_that_are_no_text_are_refused() -> None:
    answer = run(b"bench", b"unlimited", b"--media", b"cow:x\xff", LC_ALL="C.UTF-8")
    assert answer.returncode == 2
    assert answer.stderr == (
        "error: cow:x\\xff is not text in this locale's encoding, utf-8; use another name, or a UTF-8 locale "
        "(LC_ALL=C.UTF-8)\n"
    )


def threads_of(pid: int) -> set[str]:
    """The names of a process's threads, but for those that end while one looks."""
    names = set()
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(OSError):
            names.add(path.read_text(encoding="utf-8").strip())
    return names


def test_a_shells_loop_ends_with_ctrl_c() -> None:
    """A shell goes on with the next command unless this one was ended by the signal itself."""
    command = [sys.executable, "-m", "flashmob", "bench", "unlimited", "--size", "1M", "--runtime", "60s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not threads_of(process.pid) & {"flashmob-bench", "fm-sync"}:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert "stopped" in out


def test_logs_do_not_go_into_what_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("disk.img").write_bytes(bytes(8192))
    Path("mine.toml").write_text(
        "[[subsystem.namespaces]]\nmedia = 'file:disk.img'\nsize_bytes = 0\n", encoding="utf-8"
    )
    Path("lab.toml").write_text("[[ssd]]\nprofile = 'unlimited'\ntcp = '0'\n", encoding="utf-8")
    for command, words in (
        ("serve ./mine.toml --tcp 0 --json-log disk.img", "--json-log disk.img is what media file:disk.img names"),
        ("serve ./mine.toml --tcp 0 --json-log mine.toml", "--json-log mine.toml is what ./mine.toml names"),
        ("serve --config lab.toml --json-log lab.toml", "lab.toml: json_log lab.toml is what --config names"),
    ):
        assert words in refused(command, capsys)
    assert Path("disk.img").read_bytes() == bytes(8192)
