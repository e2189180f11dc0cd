"""flashmob calibrate finds what a device hides, says what its data cannot tell, and judges by points it did not see."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flashmob import cli
from flashmob.calibration.points import Load
from flashmob.calibration.simulate import run_load
from flashmob.profiles import load_profile

pytest.importorskip("scipy", reason="calibrate needs scipy")

HIDDEN = {
    "timing.read_iops": 731_000,
    "timing.write_iops": 203_000,
    "timing.read_latency_ns": 83_000,
    "timing.write_latency_ns": 13_700,
    "timing.read_bytes_per_s": 3_100_000_000,
    "timing.write_bytes_per_s": 1_900_000_000,
}
LOADS = [
    Load(rw, size, depth, 1, 1.0 if rw == "randread" else 0.0)
    for rw in ("randread", "randwrite")
    for size, depths in ((4096, (1, 4, 16, 64, 256)), (131_072, (1, 16, 64)))
    for depth in depths
]


def measure(path: Path, profile: str, settings: dict[str, Any], loads: list[Load]) -> Path:
    """A table of what a device does, as a drive's would be."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["rw", "bs_bytes", "iodepth", "numjobs", "iops", "lat_mean_us", "lat_p50_us", "lat_p99_us"])
        for load in loads:
            direction = "read" if load.read_share == 1 else "write"
            one = run_load(profile, settings, load)[direction]
            times = [time / 1e3 if time is not None else "" for time in (one.mean_ns, one.p50_ns, one.p99_ns)]
            rows.writerow([load.rw, load.bs_bytes, load.depth, load.queues, one.iops, *times])
    return path


def flashmob(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["flashmob", *arguments])
    code = cli.run(lambda: cli.app(standalone_mode=True))
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_hidden_numbers_of_simple_are_found_within_5_percent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = measure(tmp_path / "drive.csv", "d7-ps1010", HIDDEN, LOADS)
    output = tmp_path / "mine.toml"
    code, said = flashmob(capsys, monkeypatch, "calibrate", str(source), "-o", str(output), "--like", "generic-pcie4")
    assert code == 0, said
    assert f"profile in {output}" in said
    found = load_profile(str(output))
    for key, value in HIDDEN.items():
        assert getattr(found.timing, key.removeprefix("timing.")) == pytest.approx(value, rel=0.05), key
        assert found.sources[key].startswith("fitted to drive.csv"), key
    held = [line for line in said.splitlines() if "off in the median" in line]
    assert held, said
    assert "held out: " in said


def test_pages_and_firmware_of_nand_are_found_within_5_percent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = {"timing.nand.read_ns": [61_000, 61_000, 83_000], "timing.nand.firmware_ns": 14_000}
    loads = [Load("randread", 4096, depth, 1, 1.0) for depth in (1, 8, 256)]
    source = measure(tmp_path / "drive.csv", "980-pro", hidden, loads)
    output = tmp_path / "mine.toml"
    document = json.loads(
        flashmob(
            capsys,
            monkeypatch,
            "calibrate",
            str(source),
            "--model",
            "nand",
            "--like",
            "980-pro",
            "-o",
            str(output),
            "--json",
        )[1].split("\nprofile in ")[0]
    )
    nand = load_profile(str(output)).timing.nand
    assert min(nand.read_ns) == pytest.approx(61_000, rel=0.05)
    assert max(nand.read_ns) == pytest.approx(83_000, rel=0.05)
    assert nand.firmware_ns == pytest.approx(14_000, rel=0.05)
    unknown = {one["key"]: one["not_determined"] for one in document["parameters"] if one["not_determined"]}
    assert unknown["timing.nand.program_ns"] == "no point shows it"
    assert "timing.nand.firmware_ns" not in unknown


def test_check_fits_nothing_and_tells_a_device_from_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = measure(tmp_path / "drive.csv", "d7-ps1010", {}, LOADS[:4])
    same = json.loads(flashmob(capsys, monkeypatch, "calibrate", str(source), "--check", "d7-ps1010", "--json")[1])
    assert same["held_out"]["iops"] == {"count": 4, "median": 0.0, "most": 0.0}
    assert "fitted" in same
    assert not same["fitted"]
    code, said = flashmob(capsys, monkeypatch, "calibrate", str(source), "--check", "generic-sata")
    assert code == 0
    assert "furthest away:" in said
    other = json.loads(flashmob(capsys, monkeypatch, "calibrate", str(source), "--check", "generic-sata", "--json")[1])
    assert other["held_out"]["iops"]["median"] > 0.3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--check", "d7-ps1010", "-o", "x.toml"], "-o is for a fit, and --check fits nothing"),
        (["--hold-out", "2"], "--hold-out 2 is not possible"),
        (["--hold-out", "0.95"], "leaves too little to fit to"),
        (["-o", "x.json"], "-o x.json is not a profile's name; use one that ends in .toml"),
        (["--figure", "x.gif"], "x.gif: cannot be drawn"),
        (["--model", "nand", "--like", "d7-ps1010"], "d7-ps1010 does not say of what NAND it is made"),
        (["--like", "zn540"], "name"),
        (["--check", "nosuch"], "nosuch"),
        (["--jobs", "0"], "--jobs"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("drive.csv").write_text("rw,bs_bytes,iodepth,iops\nrandwrite,4096,1,1000\n")
    code, said = flashmob(capsys, monkeypatch, "calibrate", "drive.csv", *arguments)
    assert code == 2
    assert said.startswith("error: ")
    assert says in said
    assert not Path("x.toml").exists()


def test_a_source_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "drive.toml"
    source.write_text("rw,bs_bytes,iodepth,iops\nrandread,4096,1,1000\n")
    code, said = flashmob(capsys, monkeypatch, "calibrate", str(source), "-o", str(source))
    assert code == 2
    assert "would be lost" in said


def test_without_scipy_it_says_so_at_once(tmp_path: Path) -> None:
    (tmp_path / "scipy").mkdir()
    (tmp_path / "scipy" / "__init__.py").write_text("raise ImportError('none')\n")
    (tmp_path / "drive.csv").write_text("rw,bs_bytes,iodepth,iops\nrandread,4096,1,1000\n")
    ended = subprocess.run(
        [sys.executable, "-m", "flashmob", "calibrate", "drive.csv"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == "error: calibrate needs scipy, which is not installed; pip install scipy\n"


def test_the_figure_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    source = measure(tmp_path / "drive.csv", "d7-ps1010", {}, LOADS[:3])
    figure = tmp_path / "errors.svg"
    code, said = flashmob(
        capsys, monkeypatch, "calibrate", str(source), "--check", "d7-ps1010", "--figure", str(figure)
    )
    assert code == 0, said
    assert "modelled IOPS" in figure.read_text()
