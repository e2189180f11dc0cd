"""Job files of fio: what is read of them, what is refused, and that they run."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from flashmob import cli
from flashmob.errors import ConfigError
from flashmob.fio_job import FioJob, read_jobs

COMMON = "size=16m\nfilename=d7-ps1010\n"


def one(tmp_path: Path, text: str) -> FioJob:
    (job,) = jobs(tmp_path, f"[j]\n{text}\n")
    return job


def jobs(tmp_path: Path, text: str) -> list[FioJob]:
    path = tmp_path / "a.fio"
    path.write_text(text, encoding="utf-8")
    return read_jobs(path)


def test_a_job_has_what_all_jobs_have_and_its_own(tmp_path: Path) -> None:
    text = """
    ; a comment, and # another
    [global]
    ioengine=libaio
    direct=1
    bs=8k
    runtime=1m
    time_based
    [first]
    rw=randread
    numjobs=4
    iodepth=16
    [global]
    filename=optane-p4800x
    [second]
    stonewall
    bs=64k
    runtime=500ms
    ramp_time=2
    """
    first, second = jobs(tmp_path, text)
    assert (first.name, first.filename, first.unused) == ("first", "", ("ioengine", "direct"))
    assert first.options == {
        "rw": "randread",
        "bs": "8192",
        "numjobs": 4,
        "iodepth": "16",
        "runtime_ns": 60_000_000_000,
        "ramp_ns": 0,
        "verify": 0,
    }
    assert (second.name, second.filename) == ("second", "optane-p4800x")
    assert second.options["bs"] == "65536"
    assert (second.options["runtime_ns"], second.options["ramp_ns"]) == (500_000_000, 2_000_000_000)
    assert second.options["rw"] == "read", "what fio does where nothing is said"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bs=4k", {"ios": 4096, "bs": "4096"}),
        ("bs=4k,4k\nnumjobs=3", {"ios": 3 * 4096}),
        ("bs=4k\nio_size=64k\nloops=2", {"ios": 32}),
        ("number_ios=100\nnumjobs=2", {"ios": 200}),
        ("bssplit=4k/60:64k/40", {"bs": [(4096, 60), (65536, 40)], "ios": 585}),
        ("bssplit=4k/60:64k:1m/", {"bs": [(4096, 60), (65536, 20), (1 << 20, 20)]}),
        ("rw=readwrite\nrwmixread=70", {"rw": "rw", "rwmixread": "70"}),
        ("rw=read\nrwmixread=70", {"rw": "read"}),
        ("rate_iops=5k\nnumjobs=2", {"rate_iops": 10_000, "arrivals": "fixed"}),
        ("rate=8m\nbs=4k\nrate_process=poisson", {"rate_iops": 2048, "arrivals": "poisson"}),
        ("thinktime=100", {"think_time_ns": 100_000}),
        ("thinktime=2ms", {"think_time_ns": 2_000_000}),
        ("random_distribution=zipf:1.2", {"distribution": "zipf:1.2"}),
        ("random_distribution=random", {}),
        ("rw=randread\nverify=crc32c", {"verify": 100}),
        ("rw=randwrite", {"rw": "randwrite"}),
        ("cpus_allowed=0-1\nrandseed=7", {"cpus_allowed": [0], "threads": 1, "randseed": "7"}),
        ("cpus_allowed=0-1\nnumjobs=4", {"cpus_allowed": [0, 1], "threads": 2}),
        ("offset=0", {}),
    ],
)
def test_what_options_mean(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    options = one(tmp_path, COMMON + text).options
    assert options | expected == options
    assert "randwrite" not in text or "verify" not in options


def test_a_trace_of_fios_is_replayed(tmp_path: Path) -> None:
    options = one(tmp_path, "read_iolog=trace.log\nreplay_no_stall=1\nfilename=d7-ps1010").options
    assert options["read_iolog"] == "trace.log"
    assert (options["trace_format"], options["as_fast"]) == ("fio", True)


def test_variables_are_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHMOB_TEST_SIZE", "1m")
    assert one(tmp_path, "size=${FLASHMOB_TEST_SIZE}\nbs=4k").options["size"] == 1 << 20
    monkeypatch.delenv("FLASHMOB_TEST_SIZE")
    with pytest.raises(ConfigError, match="line 2: there is no variable FLASHMOB_TEST_SIZE"):
        one(tmp_path, "size=${FLASHMOB_TEST_SIZE}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rw=trim", "job j: rw=trim: use one of read"),
        ("bs=4k,8k", "bs=4k,8k: reads and writes have the same sizes"),
        ("bs=0x", "bs=0x: use a size"),
        ("bssplit=4k/60,8k/40", "give one list"),
        ("bssplit=4k/x", "write SIZE/PERCENT"),
        ("fsync=1", "fsync=1: the load has no Flush"),
        ("zonemode=zbd", "loads of zones are not there"),
        ("rate_iops=100,200", "reads and writes share one rate"),
        ("rate=1m\nrate_iops=10", "are two rates"),
        ("rate_process=normal", "use linear or poisson"),
        ("thinktime=x", "use a time such as"),
        ("numjobs=0", "numjobs=0: use a whole number from 1 on"),
        ("numjobs=1e400", "use a whole number"),
        ("size=50%", "size=50%: use bytes, or 100 %"),
        ("runtime=10", "runtime=10: and a size would end it"),
        ("ramp_time=10", "ramp_time=10: a job that ends by its size has none"),
        ("time_based=1", "time_based=1: there is no runtime"),
        ("time_based=maybe\nruntime=1", "time_based=maybe: use 1 or 0"),
        ("offset=1g", "the load covers the whole namespace"),
        ("random_distribution=pareto:1", "use random or zipf"),
        ("rw=write\nverify=md5", "this job reads nothing"),
        ("cpus_allowed=all", "cpus_allowed=all: "),
        ("sze=1g", 'did you mean "size"'),
    ],
)
def test_what_would_change_the_load_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        one(tmp_path, COMMON + text)
    assert says in str(error.value)
    assert str(tmp_path / "a.fio") in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no job"),
        ("[global]\nrw=read\n", "has no job"),
        ("rw=read\n", "line 1: an option before the first"),
        ("[a]\nsize=1m\n[b]\nsize=1m\n", "jobs a and b would run at the same time"),
        ("[a]\ninclude other.fio\n", "line 2: include"),
        ("[a]\nrw=read\n", "job a: size: is not there"),
    ],
)
def test_files_that_are_no_jobs_one_after_another(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        jobs(tmp_path, text)
    assert says in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.fio", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_jobs(path)
    (tmp_path / "binary.fio").write_bytes(b"[\xff\xfe]")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_jobs(tmp_path / "binary.fio")


TWO = """
[global]
bs=4k
iodepth=8
filename=/dev/nvme0n1
[reads]
rw=randread
size=16m
verify=crc32c
[writes]
stonewall
rw=randwrite
size=8m
"""


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.run(lambda: cli.app(["bench", *words]))
    out, err = capfd.readouterr()
    return code, out, err


def test_jobs_run_one_after_another_into_one_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, result = tmp_path / "two.fio", tmp_path / "two.json"
    path.write_text(TWO, encoding="utf-8")
    words = (str(path), "--ssd", "optane-p4800x", "--clock", "virtual")
    code, out, err = run(capfd, *words, "--json", str(result), "--output-format", "fio-json")
    assert code == 0, err
    assert "reads: optane-p4800x in virtual time" in out
    assert "writes: optane-p4800x in virtual time" in out
    first, second = json.loads(result.read_text(encoding="utf-8"))["jobs"]
    assert (first["jobname"], second["jobname"]) == ("reads", "writes")
    assert (first["read"]["total_ios"], first["write"]["total_ios"]) == (4096, 0)
    assert (second["read"]["total_ios"], second["write"]["total_ios"]) == (0, 2048)

    code, out, _ = run(capfd, *words, "--section", "writes", "--qd", "2", "--json", "-")
    assert code == 0
    alone = json.loads(out)
    assert (alone["jobname"], alone["write_ios"]) == ("writes", 2048)
    assert alone["options"]["queue_depth"] == 2, "the command line goes before the file"

    code, out, _ = run(capfd, *words, "--json", "-", "--output-format", "fio-json")
    assert code == 0
    assert len(json.loads(out)["jobs"]) == 2


def test_what_an_ssd_that_is_served_or_virtual_time_does_not_have_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], flashmob_serve: Any
) -> None:
    path = tmp_path / "one.fio"
    path.write_text("[j]\nrw=randread\nbs=4k\nsize=1m\ncpus_allowed=0\nfilename=optane-p4800x\n", encoding="utf-8")
    code, out, err = run(capfd, str(path), "--clock", "virtual")
    assert code == 0, err
    assert "j: cpus_allowed is not used, as virtual time has no threads" in out
    served = flashmob_serve("optane-p4800x", size="16M")
    code, out, err = run(capfd, str(path), "--ssd", served.target, "--json", str(tmp_path / "a.json"))
    assert code == 0, err
    assert "j: the load goes to all of the SSD that is served" in out
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["ios"] == 256


def test_what_cannot_be_asked_of_a_job_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.fio"
    path.write_text(TWO, encoding="utf-8")
    for words, says in (
        ([str(path)], "filename=/dev/nvme0n1 is a file or drive of this machine; name the SSD: --ssd"),
        ([str(path), "--ssd", "no-such"], "no-such"),
        ([str(path), "--ssd", "d7-ps1010", "--section", "read"], 'no such job (did you mean "reads"'),
        (
            [str(path), "--ssd", "d7-ps1010", "--json", str(tmp_path / "x.json")],
            "holds one result, and there are 2 jobs",
        ),
        (["d7-ps1010", "--section", "reads"], "--section is of a job file of fio's"),
        (["d7-ps1010", "--ssd", "d7-ps1010"], "--ssd is of a job file of fio's"),
    ):
        code, _, err = run(capfd, *words)
        assert (code, says in err.replace("\n", " ")) == (2, True), err


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_understands_the_files_that_these_tests_run(tmp_path: Path) -> None:
    path = tmp_path / "two.fio"
    path.write_text(TWO, encoding="utf-8")
    parsed = subprocess.run(
        ["fio", "--parse-only", str(path)], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert parsed.returncode == 0, parsed.stderr
