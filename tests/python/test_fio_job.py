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
        ("rate_iops=100,", {"rate_iops": 100}),
        ("rate_iops=100,200", {"rate_iops": 100}),
        ("rw=write\nrate_iops=100,200", {"rate_iops": 200}),
        ("rw=randrw\nrate_iops=100\nnumjobs=2", {"rate_iops": 400}),
        ("rw=randrw\nrwmixwrite=50\nrate=4m,4m", {"rate_iops": 2048}),
        ("ioengine=libaio\niodepth=32", {"iodepth": "32"}),
        ("ioengine=psync\niodepth=32", {"iodepth": "1"}),
        ("iodepth=32", {"iodepth": "32"}),
        ("thinktime=100", {"think_time_ns": 100_000}),
        ("thinktime=2ms", {"think_time_ns": 2_000_000}),
        ("random_distribution=zipf:1.2", {"distribution": "zipf:1.2"}),
        ("random_distribution=random", {}),
        ("rw=randread\nverify=crc32c", {"verify": 100}),
        ("rw=randwrite", {"rw": "randwrite"}),
        ("cpus_allowed=0-1\nrandseed=7", {"cpus_allowed": [0], "threads": 1, "randseed": "7"}),
        ("cpus_allowed=0-1\nnumjobs=4", {"cpus_allowed": [0, 1], "threads": 2}),
        ("offset=0", {}),
        ("bs=8k # as the database has", {"bs": "8192", "ios": 2048}),
        ("bs=8k; as the database has\nnumjobs=2 ;two", {"bs": "8192", "numjobs": 2}),
        ("bssplit=4k/100:8k/0", {"bs": [(4096, 100.0)], "ios": 4096}),
        ("rw=randrw\nrwmixread=70\nrwmixwrite=40", {"rwmixwrite": "40"}),
        ("rw=randrw\nrwmixwrite=40\nrwmixread=70", {"rwmixread": "70"}),
        ("stonewall", {"ios": 4096}),
        ("io_size=0", {"ios": 4096}),
    ],
)
def test_what_options_mean(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    options = one(tmp_path, COMMON + text).options
    assert options | expected == options
    assert "randwrite" not in text or "verify" not in options
    assert not {"rwmixread", "rwmixwrite"} <= options.keys()


@pytest.mark.parametrize(
    "text", ["rate=0", "rate_iops=0", "rate=0\nrate_process=poisson", "rw=write\nrate_iops=5,", "rw=randrw\nrate=,"]
)
def test_a_rate_of_nothing_is_no_limit_as_with_fio(tmp_path: Path, text: str) -> None:
    assert not {"rate_iops", "arrivals"} & one(tmp_path, COMMON + text).options.keys()


def test_a_depth_that_fio_would_not_have_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert one(tmp_path, f"{COMMON}ioengine=libaio\niodepth=32").depth_note == ""
    assert one(tmp_path, f"{COMMON}ioengine=sync").depth_note == ""
    assert one(tmp_path, f"{COMMON}ioengine=sync\niodepth=32").depth_note.startswith("iodepth=32 is 1, as with fio")
    assert one(tmp_path, f"{COMMON}iodepth=32").depth_note.startswith("iodepth=32 is taken; fio has 1")
    path = tmp_path / "a.fio"
    path.write_text(f"[j]\n{COMMON}bs=64k\nioengine=sync\niodepth=32\n", encoding="utf-8")
    _, out, _ = run(capfd, str(path), "--clock", "virtual")
    assert "iodepth=32 is 1" in out
    assert "1 queue × 1 in flight" in out
    _, out, _ = run(capfd, str(path), "--clock", "virtual", "--qd", "4")
    assert "iodepth=32" not in out
    assert "1 queue × 4 in flight" in out


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, f"\ufeff[j]\n{COMMON}")
    assert job.name == "j"


@pytest.mark.parametrize("where", ["[global]\nstonewall\n[a]\n", "[global]\n[a]\nwait_for_previous\n"])
def test_the_first_job_and_all_jobs_may_wait_for_those_before(tmp_path: Path, where: str) -> None:
    found = jobs(tmp_path, f"{where}size=1m\n[b]\nsize=1m\nstonewall\n")
    assert [job.name for job in found] == ["a", "b"]


def test_a_trace_of_fios_is_replayed(tmp_path: Path) -> None:
    options = one(tmp_path, "read_iolog=trace.log\nreplay_no_stall=1\nfilename=d7-ps1010").options
    assert options["read_iolog"] == "trace.log"
    assert (options["trace_format"], options["as_fast"]) == ("fio", True)
    assert not {"rw", "bs", "size", "arrivals", "ramp_ns", "runtime_ns"} & options.keys()


def test_beside_a_trace_the_load_is_the_traces(tmp_path: Path) -> None:
    job = one(
        tmp_path,
        "rw=randwrite\nblocksize=8k\nsize=1g\nrate=1m\nthinktime=10\ntime_based\nruntime=5\nnumber_ios=7\n"
        "iodepth=64\nverify=crc32c\nread_iolog=a\\:b.log",
    )
    assert job.by_trace == ("rw", "blocksize", "size", "rate", "thinktime", "time_based")
    assert job.options == {
        "read_iolog": "a:b.log",
        "trace_format": "fio",
        "runtime_ns": 5_000_000_000,
        "ios": 7,
        "numjobs": 1,
        "iodepth": "64",
        "verify": 100,
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [("numjobs=2", "numjobs=2: each of them would replay the whole trace"), ("loops=3", "loops=3: a trace is")],
)
def test_a_trace_is_replayed_once(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        one(tmp_path, f"read_iolog=a.log\n{text}")


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
        ("rw=randrw\nrate_iops=100,200", "rate_iops=100,200: fio holds reads and writes to a rate each"),
        ("rw=randrw\nrate_iops=100,", "rate_iops=100,: fio holds"),
        ("rw=randrw\nrwmixread=70\nrate=1m", "rate=1m: fio holds"),
        ("rate_iops=-5", "rate_iops=-5: use a rate above 0"),
        ("rate_iops=x", "rate_iops=x: use a rate"),
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
        ("bs=0", "bs=0: a request has at least one block"),
        ("blocksize=0", "blocksize=0: a request has"),
        ("bssplit=4k/0", "bssplit=4k/0: no size has a share"),
        ("bssplit=0/100", "bssplit=0/100: a request has"),
        ("bssplit=4k/0\nrate=1m", "no size has a share"),
        ("bssplit=4k/60:8k/60", "the shares are more than 100 %"),
        ("size=0", "size=0: names no number of bytes"),
        ("size=-5", "size=-5: use a number of bytes"),
        ("runtime=-5\ntime_based", "runtime=-5: use a time such as"),
        ("thinktime=-1", "thinktime=-1: use a time such as"),
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


def test_a_name_that_is_no_jobs_is_said_before_jobs_meet(tmp_path: Path) -> None:
    path = tmp_path / "two.fio"
    path.write_text("[one]\nsize=1m\n[two]\nsize=1m\n")
    with pytest.raises(ConfigError, match=r"--section tow: .* has no such job \(did you mean .two.\?\)"):
        read_jobs(path, ["tow"])
    assert [job.name for job in read_jobs(path, ["two"])] == ["two"]


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


def iolog(tmp_path: Path) -> Path:
    path = tmp_path / "t.log"
    lines = "".join(f"{20 * place} f {'write' if place % 3 else 'read'} {4096 * place} 4096\n" for place in range(60))
    path.write_text(f"fio version 3 iolog\n0 f add\n0 f open\n{lines}", encoding="utf-8")
    return path


def test_a_jobs_trace_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.fio"
    path.write_text(f"[t]\nread_iolog={iolog(tmp_path)}\nbs=64k\niodepth=32\nfilename=d7-ps1010\n", encoding="utf-8")
    code, out, err = run(capfd, str(path), "--clock", "virtual", "--json", str(tmp_path / "t.json"))
    assert code == 0, err
    assert "t: not used, as the trace says what is asked: bs" in out
    result = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert (result["read_ios"], result["write_ios"], result["options"]["queue_depth"]) == (20, 40, 32)


def test_a_trace_of_the_command_line_goes_before_what_jobs_ask(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.fio"
    path.write_text(TWO, encoding="utf-8")
    words = (str(path), "--ssd", "d7-ps1010", "--section", "writes", "--trace", str(iolog(tmp_path)))
    code, out, err = run(capfd, *words, "--clock", "virtual", "--json", str(tmp_path / "t.json"))
    assert code == 0, err
    assert "writes: not used, as the trace says what is asked: bs, rw, size" in out
    result = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert (result["read_ios"], result["write_ios"], result["options"]["queue_depth"]) == (20, 40, 8)


TWO_ALIKE = """
[global]
filename=optane-p4800x
bs=4k
size=1m
[a]
[b]
stonewall
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("iodepth=99999999", "iodepth=99999999 is not possible: use at most 65535"),
        ("filename=nosuch", "'nosuch' is not known"),
        ("size=1000", "size=1000 is not possible: 1000 is not a multiple of lba_bytes"),
        ("rw=randwrite\nfilename=zn540\nsize=4g", "rw=randwrite is not possible: the namespace's command set is zns"),
        ("filename=nvmevirt-kv\nsize=16m", "command_set = kv"),
        ("filename=", "it names no SSD"),
        ("read_iolog=/nonexistent", "read_iolog=/nonexistent cannot be read"),
        ("bs=32m\nsize=64m", "bs=32m is not possible: use multiples of 512 bytes up to 16M"),
        ("thinktime=5\nrate_iops=10", "thinktime=5 is for a closed loop, and rate_iops=10 makes an open one"),
    ],
)
def test_all_jobs_are_looked_at_before_one_begins(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    path = tmp_path / "two.fio"
    path.write_text(f"{TWO_ALIKE}{text}\n", encoding="utf-8")
    code, out, err = run(capfd, str(path), "--clock", "virtual")
    assert (code, out) == (2, "")
    assert f"{path}, job b: {says}" in err.replace("\n", " ")


@pytest.mark.parametrize("fails", [ConfigError, RuntimeError, KeyboardInterrupt])
def test_standard_output_has_the_jobs_that_ended_before_one_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fails: type[BaseException]
) -> None:
    from flashmob import progress

    followed, begun = progress.follow, [0]

    def follow(bench: Any, console: Any) -> bool:
        begun[0] += 1
        if begun[0] == 2:
            raise fails("no more")
        return followed(bench, console)

    monkeypatch.setattr(progress, "follow", follow)
    path = tmp_path / "two.fio"
    path.write_text(TWO_ALIKE, encoding="utf-8")
    code, out, err = run(capfd, str(path), "--clock", "virtual", "--json", "-", "--output-format", "fio-json")
    assert code != 0
    assert [job["jobname"] for job in json.loads(out)["jobs"]] == ["a"]
    assert fails is not ConfigError or f"{path}, job b: no more" in err


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
