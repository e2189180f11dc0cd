"""The ioengine for fio: real fio writes, reads, verifies and trims emulated SSDs, in its process and behind doors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from flashmob.device import core_device, core_module
from flashmob.profiles import load_profile
from test_core_serve import served

ENGINE = Path(__file__).parents[2] / "build" / "libflashmob_fio.so"


@pytest.fixture(autouse=True)
def is_there() -> None:
    if os.environ.get("CI") == "true":
        assert shutil.which("fio"), "scripts/bootstrap.sh test installs fio"
        assert ENGINE.exists(), "scripts/fio_engine.sh builds it"
    elif shutil.which("fio") is None or not ENGINE.exists():
        pytest.skip("needs fio and its ioengine: make fio-engine")


def settings(folder: Path, profile: str = "unlimited", **changes: Any) -> Path:
    size = {"subsystem.namespaces.0.size_bytes": 64 << 20}
    device = load_profile(profile, size | {key.replace("__", "."): value for key, value in changes.items()})
    path = folder / f"{profile}.settings"
    path.write_text(core_module().config_text(core_device(device)))
    return path


def fio(*arguments: object, ssd: object, thread: bool = True) -> subprocess.CompletedProcess[str]:
    command = ["fio", f"--ioengine=external:{ENGINE}", f"--ssd={ssd}", "--output-format=json"]
    command += ["--thread"] if thread else []
    command += [str(argument) for argument in arguments]
    # Where it is started it leaves files of what it verifies.
    folder = Path(str(ssd)).parent if Path(str(ssd)).is_file() else None
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=folder)


def jobs(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    return found


def test_what_fio_writes_it_reads_back(tmp_path: Path) -> None:
    one = ("--name=one", "--rw=randwrite", "--bsrange=512-200k", "--size=32M", "--iodepth=16", "--verify=crc32c")
    (job,) = jobs(fio(*one, "--fsync=50", ssd=settings(tmp_path)))
    assert job["error"] == 0
    assert job["read"]["total_ios"] == job["write"]["total_ios"] > 100
    assert job["sync"]["total_ios"] > 0


def test_threads_share_what_has_one_name(tmp_path: Path) -> None:
    common = ("--bs=4k", "--size=8M", "--verify=crc32c")
    first = ("--name=writer", "--rw=write", "--do_verify=0", *common)
    second = ("--name=reader", "--stonewall", "--rw=read", "--numjobs=2", *common)
    found = jobs(fio(*first, *second, ssd=settings(tmp_path)))
    assert [job["read"]["total_ios"] for job in found] == [0, 2048, 2048]


def test_the_device_is_the_profiles(tmp_path: Path) -> None:
    ssd = settings(tmp_path, "d7-ps1010", timing__read_latency_ns=3_000_000)
    (job,) = jobs(fio("--name=slow", "--rw=randread", "--bs=4k", "--number_ios=20", "--size=8M", ssd=ssd))
    assert job["read"]["clat_ns"]["min"] >= 2_900_000


def test_blocks_that_are_trimmed_read_as_zeroes(tmp_path: Path) -> None:
    common = ("--bs=64k", "--size=4M")
    write = ("--name=write", "--rw=write", *common)
    trim = ("--name=trim", "--stonewall", "--rw=trim", *common)
    read = ("--name=read", "--stonewall", "--rw=read", "--verify=pattern", "--verify_pattern=0x00", *common)
    found = jobs(fio(*write, *trim, *read, ssd=settings(tmp_path)))
    assert [job["error"] for job in found] == [0, 0, 0]
    assert found[1]["trim"]["total_ios"] == 64


def test_processes_of_jobs_meet_behind_a_door(tmp_path: Path) -> None:
    with served(tmp_path, "unlimited", "--size", "64M", "--vfio-user", ".") as (_process, doors):
        one = (
            "--name=one",
            "--rw=randrw",
            "--bs=4k",
            "--size=8M",
            "--iodepth=8",
            "--verify=crc32c",
            "--verify_state_save=0",
        )
        found = jobs(fio(*one, "--numjobs=2", "--offset_increment=8M", ssd=doors["ssd0 vfio-user"], thread=False))
    assert [job["error"] for job in found] == [0, 0]


def test_a_fault_is_an_error_of_fios(tmp_path: Path) -> None:
    ssd = settings(tmp_path, faults=["error on=read at=3"])
    done = fio("--name=one", "--rw=read", "--bs=4k", "--size=1M", ssd=ssd)
    assert done.returncode != 0
    assert "Input/output error" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("ssd", "thread", "arguments", "said"),
    [
        ("{settings}", False, (), "lives in fio's process, which jobs would leave: add the option thread"),
        ("no-such-profile", True, (), "ssd=no-such-profile"),
        ("a; reboot", True, (), "is no profile, no file of settings"),
        ("vfio-user:/nonexistent/x", True, (), "is the server running"),
        ("{settings}", True, ("--nsid=7",), "namespace 7 is not there"),
        ("{wrong}", True, (), "line 1: seed cannot be x"),
        ("{settings}", True, ("--iodepth=5000",), "are more than 4096 commands at once"),
        ("{settings}", True, ("--bs=100",), "Invalid argument"),
    ],
)
def test_mistakes_are_said_in_a_sentence(
    tmp_path: Path, ssd: str, thread: bool, arguments: tuple[str, ...], said: str
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("seed = x\n")
    name = ssd.format(settings=settings(tmp_path), wrong=wrong)
    done = fio("--name=one", "--rw=read", "--bs=4k", "--size=1M", *arguments, ssd=name, thread=thread)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr


def test_without_a_name_nothing_is_opened() -> None:
    command = ["fio", f"--ioengine=external:{ENGINE}", "--thread", "--name=one", "--rw=read", "--size=1M"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "ssd= is missing: name a profile, a file or a door" in done.stdout + done.stderr
