"""flashmob profiles: the list, one profile with its sources, a file of it, JSON, and profiles of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flashmob import cli, profiles


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / "flashmob" / "profiles"
    folder.mkdir(parents=True)
    return folder


def flashmob(*arguments: str) -> int:
    return cli.run(lambda: cli.app(list(arguments), standalone_mode=True))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert flashmob("profiles", *arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def parsed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(printed(capsys, *arguments))


def test_the_list_has_rates_and_bandwidth_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    listed = printed(capsys)
    assert printed(capsys, "list") == listed
    lines = listed.splitlines()
    table = lines[: 1 + len(profiles.profile_names())]
    assert all(len(line.rstrip()) <= 80 for line in table)
    row = next(line for line in lines if line.startswith("d7-ps1010 "))
    assert row.split() == ["d7-ps1010", "2.47M", "150k", "14.5/4.1", "50/15", "Solidigm", "D7-PS1010", "1.92", "TB"]
    # One line for each, and no text is cut.
    assert [line.split()[0] for line in table[1:]] == profiles.profile_names()
    for name, line in zip(profiles.profile_names(), table[1:], strict=True):
        assert line.rstrip().endswith(profiles.load_profile(name).description)


def test_a_narrow_terminal_loses_columns_but_no_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    listed = printed(capsys)
    for name in profiles.profile_names():
        assert f"{name} " in listed
    assert "what it is" not in listed


def test_profiles_of_ones_own_are_listed_as_such(capsys: pytest.CaptureFixture[str], own_folder: Path) -> None:
    assert "yours:" not in printed(capsys)
    assert str(own_folder) in printed(capsys).splitlines()  # whole, to be copied
    (own_folder / "mine.toml").write_text(printed(capsys, "show", "cm7", "--toml"), encoding="utf-8")
    (own_folder / "fl6.toml").write_text('description = "my FL6"\n', encoding="utf-8")
    (own_folder / "broken.toml").write_text("[timing]\nread_iop = 1\n", encoding="utf-8")
    listed = printed(capsys)
    packaged, _, own = listed.partition("yours:")
    assert "fl6 " not in packaged
    assert "my FL6" in own
    assert "Your fl6 stands in place of the packaged one." in own
    assert "mine" in own
    assert "broken cannot be used:" in own
    assert 'did you mean "read_iops"' in own
    rows = {row["name"]: row for row in parsed(capsys, "--json")}
    assert (rows["fl6"]["packaged"], rows["fl6"]["shadows_packaged"]) == (False, True)
    assert rows["cm7"]["packaged"] is True
    assert "read_iops" in rows["broken"]["error"]


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = parsed(capsys, "--json")
    assert rows == parsed(capsys, "list", "--json")
    d7 = next(row for row in rows if row["name"] == "d7-ps1010")
    assert d7["read"] == {"iops": 2.47e6, "iops_4k": 2.47e6, "bytes_per_s": 14.5e9, "latency_ns": 50_000}
    assert d7["size_bytes"] == 1_920_383_410_176
    assert next(row for row in rows if row["name"] == "unlimited")["read"] is None


def test_show_tells_sources_and_defaults_apart(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, "show", "d7-ps1010", "--set", "timing.read_iops=3e6")
    given, _, defaults = shown.partition("defaults, which the profile leaves as they are:")
    assert "timing.read_iops = 3e+06 (3.000 MIOPS)\n    set by hand" in given
    assert "timing.read_bytes_per_s = 14500000000 (14.5 GB/s)" in given
    assert "TechPowerUp" in given
    assert "subsystem.namespaces.0.size_bytes" in given
    assert "timing.link_bytes_per_s = 0 (no limit)" in defaults
    assert "engine.units = 1" in defaults
    # What one may copy is in one piece, on any terminal.
    assert "\nsubsystem.nqn = nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001\n" in defaults


def test_show_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    shown = parsed(capsys, "show", "cm7", "--json")
    assert shown["settings"]["timing"]["read_iops"] == 2.7e6
    assert "Kioxia" in shown["sources"]["timing.read_iops"]
    assert "engine.units" in shown["defaults"]
    assert "timing.read_iops" not in shown["defaults"]


def test_show_as_toml_can_be_saved_edited_and_used_by_name(
    capsys: pytest.CaptureFixture[str], own_folder: Path
) -> None:
    text = printed(capsys, "show", "generic-pcie5", "--toml")
    edited = text.replace("read_iops = 3_180_000", 'read_iops = "3M"').replace("# units = 1", "units = 2")
    (own_folder / "mine.toml").write_text(edited, encoding="utf-8")
    mine = profiles.load_profile("mine")
    assert (mine.timing.read_iops, mine.engine.units) == (3e6, 2)
    assert mine.subsystem == profiles.load_profile("generic-pcie5").subsystem
    assert parsed(capsys, "show", "mine", "--json")["path"] == str(own_folder / "mine.toml")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "cm7", "--toml", "--json"], "exclude each other"),
        (["--json", "show", "cm7"], "write it after show"),
        (["show", "cm8"], 'did you mean "cm7"'),
    ],
)
def test_mistakes(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert flashmob("profiles", *arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
