"""Results into files and tables: flashmob plot, flashmob.plot() with paths, labels."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flashmob import ConfigError, Result, cli, outputs
from flashmob.figure import bandwidth_label, binary_label, latency_label, rate_label
from flashmob.plot_table import table
from flashmob.plotting import load_results
from rich.console import Console

pytest.importorskip("matplotlib")
flashmob = pytest.importorskip("flashmob")

Make = Callable[..., Result]


def panels(figure: Any) -> dict[str, Any]:
    """A figure's panels by their titles, after it was laid out as if to be written."""
    figure.canvas.draw()
    return {axes.get_title(loc="left"): axes for axes in figure.axes}


def labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels() if label.get_text()]


def direction(iops: float, ios: int = 1_000_000, mean: float = 50_000) -> dict[str, Any]:
    figures = {"mean": mean, "min": mean, "p50": mean, "p90": mean, "p99": 2 * mean, "p999": 3 * mean, "max": 9 * mean}
    return {"ios": ios, "iops": iops, "bw_bytes": iops * 512, "latency_ns": figures}


def run(*arguments: str) -> int:
    return cli.run(lambda: cli.app(list(arguments), standalone_mode=True))


@pytest.fixture
def files(make: Make, tmp_path: Path) -> list[str]:
    paths = []
    for qd in (1, 128, 2, 32, 64, 8):
        path = tmp_path / f"qd{qd}.json"
        path.write_text(make(qd).to_json(), encoding="utf-8")
        paths.append(str(path))
    return paths


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "PNG"])
def test_formats_and_equal_files(ending: str, files: list[str], tmp_path: Path) -> None:
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    pictures = []
    for name in "ab":
        path = tmp_path / f"{name}.{ending}"
        assert run("plot", *files, "-o", str(path)) == 0
        pictures.append(path.read_bytes())
    assert pictures[0].startswith(starts[ending.lower()])
    assert pictures[0] == pictures[1]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("/proc/x.png", "-o /proc/x.png cannot be written"),
        ("/nowhere/at/all.png", "-o /nowhere/at/all.png cannot be written"),
        ("folder.png", "is a folder; name a file in it"),
        ("x.bmp", "use a file name that ends in .png, .svg, .pdf"),
    ],
)
def test_a_file_that_cannot_be_is_refused_at_once(
    output: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    Path("folder.png").mkdir()
    assert run("plot", "not-read-yet.json", "-o", output) == 2
    assert words in capsys.readouterr().err


def test_without_matplotlib_there_is_a_table_and_one_sentence(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flashmob.figure.drawable", lambda: False)
    assert run("plot", *files, "-o", str(tmp_path / "x.svg")) == 2
    captured = capsys.readouterr()
    assert captured.err == "error: figures need matplotlib; run pip install matplotlib\n"
    assert [line.split()[0] for line in captured.out.splitlines()[1:]] == ["1", "2", "8", "32", "64", "128"]


def test_without_a_file_the_command_prints_the_table(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plot", *files) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].split() == ["queue", "depth", "IOPS", "model", "mean", "p99", "p99.9", "verdict"]
    assert len(text.splitlines()) == 7


def test_a_file_named_twice_is_said_to_be(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plot", *files, files[0], str(Path(files[1]).absolute())) == 0
    captured = capsys.readouterr()
    assert captured.err == f"2 of {len(files) + 2} files left out: named before\n"
    assert len(captured.out.splitlines()) == 7


def printed(results: list[Result], width: int = 80) -> str:
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(table(results, width), highlight=False, soft_wrap=True)
    return captured.get()


def test_the_table_fits_80_columns(make: Make) -> None:
    results = [
        make(
            qd,
            device={"profile": f"a-drive-with-a-rather-long-name-{index}"},
            clock=clock,
            read=direction(1e6),
            write=direction(2e6),
            verdict="VALID (lateness only)" if qd == 1 else "INVALID",
        )
        for index in range(2)
        for clock in ("real", "virtual")
        for qd in (1, 8)
    ]
    text = printed(results)
    assert max(map(len, text.splitlines())) <= 80
    for words in ("1.000 M", "51.2 us", "VALID (lateness only)", "  writes", "long-name-1, virtual time\n"):
        assert words in text
    # Columns go, nothing is cut.
    narrow = printed(results, 60)
    assert "p99.9" not in narrow
    assert max(map(len, narrow.splitlines())) <= 60
    assert "VALID (lateness only)" in narrow


def test_the_table_of_rows_names_long_devices_above_them(make: Make) -> None:
    nqn = "nvme-tcp:127.0.0.1:4420/nqn.2014-08.org.nvmexpress:uuid:01234567-89ab-cdef-0123-456789abcdef"
    text = printed([make(1, device={"profile": nqn}), make(1, device={"profile": "d7-ps1010"})])
    assert nqn in text.splitlines()
    short = printed([make(1, device={"profile": name}) for name in ("one", "two")])
    assert [line.split()[0] for line in short.splitlines()] == ["IOPS", "one", "two"]


def test_lines_of_results_are_read_and_files_only_once(make: Make, tmp_path: Path) -> None:
    several = tmp_path / "sweep.jsonl"
    several.write_text("".join(make(qd).to_json(indent=None) + "\n" for qd in (1, 2)) + "\n", encoding="utf-8")
    one = tmp_path / "one.json"
    one.write_text(make(4).to_json(), encoding="utf-8")
    assert len(load_results([several, one, str(one)])) == 3
    several.write_text("{\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1: is not JSON"):
        load_results([several])
    for name in ("missing.jsonl", "missing.json"):
        with pytest.raises(ConfigError, match=f"^{name}: cannot be read"):
            load_results([name])


def test_plot_takes_results_and_files(make: Make, files: list[str]) -> None:
    assert "Bandwidth" in panels(flashmob.plot([*map(Path, files[:2]), make(256)]))
    with pytest.raises(ConfigError, match="nothing to draw"):
        flashmob.plot([])


def test_a_file_without_results_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert run("plot", str(empty), "-o", str(tmp_path / "x.png")) == 2
    assert "no result in there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        (latency_label, 0, "0"),
        (latency_label, 999.96, "1 µs"),
        (latency_label, 50_200, "50.2 µs"),
        (latency_label, 2_600_000, "2.6 ms"),
        (latency_label, 3.6e12, "3600 s"),
        (rate_label, 2_470_000, "2.47 M"),
        (rate_label, 950, "950"),
        (bandwidth_label, 1.264e9, "1.26 GB/s"),
        (bandwidth_label, 12, "12 B/s"),
        (binary_label, 262_144, "256K"),
        (binary_label, 1025, "1,025"),
        (binary_label, 1_000_000, "1,000,000"),
    ],
)
def test_labels(text: Callable[[float], str], value: float, expected: str) -> None:
    assert text(value) == expected


def test_one_ssd_of_gpu_check_shows_its_writes() -> None:
    """A line of one point is nothing without a marker."""
    from flashmob.figure import new_figure, style
    from flashmob.gpu.figures import _random_io

    runs = [
        (
            SimpleNamespace(ssds=1, options={"bytes": 4096, "write": write}),
            SimpleNamespace(outcome={"bytes_per_s": 2e9 if write else 9e9}),
        )
        for write in (False, True)
    ]
    with style():
        axes = new_figure(5, 4, title="").add_subplot()
        _random_io(axes, runs)
    assert len(axes.get_lines()) == 2
    assert all(line.get_marker() not in ("", "None") for line in axes.get_lines())


def test_load_axis_writes_no_tick_twice() -> None:
    from flashmob.figure import load_axis, new_figure, style

    with style():
        axes = new_figure(5, 4, title="").add_subplot()
        load_axis(axes, [1024, 1025, 1026, 2048, 1 << 20])
        found = labels(axes.xaxis)
    assert found[-1] == "1M"
    assert len(found) == len(set(found))
    assert json.dumps(found)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *_: object, **__: object) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    link, file = tmp_path / "link.json", tmp_path / "result.json"
    link.symlink_to(file)
    outputs.write_text(link, "before")
    file.chmod(0o600)
    outputs.write_text(link, "later")
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(Path, "write_text", full)
    for name in ("result.json", "new.json"):
        with pytest.raises(OSError, match="No space"):
            outputs.write_text(tmp_path / name, "text")
    assert file.read_text() == "later"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "result.json"]
