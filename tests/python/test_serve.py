"""Serving without a device: lab files, addresses, metrics and what the command line refuses."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flashmob import ConfigError, Result, cli
from flashmob.lab import checked_ssd, load_lab
from flashmob.metrics import JsonLog, MetricsEndpoint, prometheus_text, stats_record
from flashmob.network import numeric_address
from flashmob.report import report
from flashmob.runner import prepare
from flashmob.units import parse_address, split_address
from rich.console import Console

NQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"


def figures(mean: float = 50_000.0) -> SimpleNamespace:
    return SimpleNamespace(mean_ns=mean, p50_ns=50_000, p99_ns=60_000, p999_ns=70_000)


def host(**changes: Any) -> SimpleNamespace:
    values = {"door": "nvme-tcp", "host": NQN, "controller_id": 1, "state": "ready", "queues": 4}
    values |= {"read_commands": 10, "write_commands": 5, "read_bytes": 5120, "written_bytes": 2560}
    values |= {"read_iops": 1000.0, "write_iops": 500.5, "read_bytes_per_s": 512e3, "written_bytes_per_s": 256e3}
    return SimpleNamespace(**values | changes)


def stats(**changes: Any) -> Any:
    values = {"uptime_s": 12.5, "interval_s": 1.0, "hosts": [host()], "iops": 1500.5, "read_bytes_per_s": 512e3}
    values |= {"written_bytes_per_s": 256e3, "queue_depth": 3.25, "latency": figures(), "target": figures(49_000.0)}
    values |= {"lateness": figures(1_000.0), "verdict": "VALID", "verdict_cause": "", "completions": 15}
    values |= {"read_commands": 10, "write_commands": 5, "read_bytes": 5120, "written_bytes": 2560, "hosts_seen": 1}
    values |= {"total_latency": figures(), "total_lateness": figures(900.0), "lateness_max_ns": 45_000}
    values |= {"gap_count": 3, "gap_longest_ns": 24_000, "verdict_so_far": "VALID", "verdict_so_far_cause": ""}
    values |= {"faults": [SimpleNamespace(rule="lose at=9", matched=20, injected=1)]}
    return SimpleNamespace(**values | changes)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("4420", "127.0.0.1:4420"),
        (4420, "127.0.0.1:4420"),
        (":0", "127.0.0.1:0"),
        ("0.0.0.0:65535", "0.0.0.0:65535"),
        ("[::1]:4420", "[::1]:4420"),
        ("[fe80::1%eth0]:1", "[fe80::1%eth0]:1"),
        ("storage.example:4420", "storage.example:4420"),
    ],
)
def test_addresses_are_loopback_unless_told_otherwise(text: object, address: str) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "x", "65536", "-1", "::1:4420", "[::1]", "a b:1", "1.5", True, None, 1.5, "a:b:1"]
)
def test_addresses_that_are_none(text: object) -> None:
    with pytest.raises(ValueError, match="ADDRESS:PORT"):
        parse_address(text)


def test_split_address() -> None:
    assert split_address("[::1]:80") == ("::1", 80)
    assert split_address("127.0.0.1:0") == ("127.0.0.1", 0)


def write_lab(folder: Path, text: str) -> Path:
    path = folder / "lab.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_packaged_lab_is_right() -> None:
    lab = load_lab(Path(__file__).resolve().parents[2] / "packaging" / "lab.toml")
    assert [ssd.name for ssd in lab.ssd] == ["ssd0", "ssd1"]
    assert lab.ssd[0].socket_path == "/run/flashmob/ssd0/cntrl"
    assert lab.ssd[1].device().timing.read_iops == 500_000
    assert lab.metrics == "127.0.0.1:9436"


def test_every_ssd_has_an_identity_that_stays() -> None:
    first, again, second = (
        checked_ssd({"profile": "d7-ps1010", "name": name, "tcp": 0}, "test").device() for name in ("a", "a", "b")
    )
    assert first.subsystem.nqn == again.subsystem.nqn != second.subsystem.nqn
    assert first.subsystem.serial == again.subsystem.serial != second.subsystem.serial
    assert len(first.subsystem.serial) == 20
    own = checked_ssd({"profile": "d7-ps1010", "tcp": 0, "set": {"subsystem.nqn": NQN}}, "test").device()
    assert own.subsystem.nqn == NQN


def test_a_profile_beside_the_lab(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('description = "x"\n[timing]\nread_iops = 1e5\n', encoding="utf-8")
    lab = load_lab(write_lab(tmp_path, '[[ssd]]\nprofile = "./mine.toml"\ntcp = 0\n'))
    assert lab.ssd[0].device(tmp_path).timing.read_iops == 1e5
    with pytest.raises(ConfigError, match=r"mine\.toml: cannot be read"):
        lab.ssd[0].device(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ssd"),
        ("ssd = []", "ssd"),
        ("[[ssd]", "is not valid TOML"),
        ("[[ssd]]\ntcp = 1", "profile"),
        ("[[ssd]]\nprofile = 'x'", "has no door"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 70000", "ADDRESS:PORT"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\nnmae = 'a'", 'did you mean "name"'),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\nname = '../up'", "name"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\nname = ''", "name"),
        ("[[ssd]]\nprofile = 'x'\nvfio_user = 'a'\nhost_nqns = ['nqn.x']", "alone knows hosts by their NQN"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\nhost_nqns = ['x']", "host_nqns"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\n[[ssd.hosts]]\nnqn = 'nqn.x'\ncontroller_key = 'DHHC-1:00:x:'", "needs key"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\n[[ssd.hosts]]\nnqn = 'nqn.x'\nkey = 'secret'", "key"),
        ("[[ssd]]\nprofile = 'x'\nvfio_user = '/" + "a" * 100 + "'", "too long"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\n[[ssd]]\nprofile = 'x'\ntcp = 2", "two SSDs are called"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\n[[ssd]]\nname = 'b'\nprofile = 'x'\ntcp = 1", "two SSDs listen at"),
        ("metrics = 'x'\n[[ssd]]\nprofile = 'x'\ntcp = 1", "metrics = 'x' is not possible"),
    ],
)
def test_labs_that_are_wrong(tmp_path: Path, text: str, words: str) -> None:
    path = write_lab(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_lab(path)
    assert words in str(raised.value)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve"], "PROFILE or --config"),
        (["serve", "d7-ps1010"], "has no door"),
        (["serve", "d7-ps1010", "--tcp", "nowhere"], "ADDRESS:PORT"),
        (["serve", "d7-ps1010", "--tcp", "0", "--interval", "1"], "1s"),
        (["serve", "d7-ps1010", "--tcp", "0", "--interval", "1ms"], "at least 10ms"),
        (["serve", "d7-ps1010", "--tcp", "0", "--metrics", "x"], "--metrics x"),
        (["serve", "d7-ps1010", "--tcp", "0", "--host-nqn", "me"], "--host-nqn me is not possible: write an NQN"),
        (["serve", "d7-ps1010", "--config", "lab.toml"], "leave out d7-ps1010, or put it into lab.toml"),
        (["serve", "--config", "./nope.toml"], "cannot be read"),
        (["serve", "d7-ps1010", "--tcp", "0", "--fault", "explode"], "begin with one of error"),
        (["bench", "vfio-user:/x", "--fault", "error"], "give it to flashmob serve"),
        (["serve", "d7-ps1010", "--tcp", "0", "--size", "x"], "--size x is not possible"),
        (["serve", "d7-ps1010", "--tcp", "0", "--size", "5"], "--size 5 is not possible"),
        (["serve", "d7-ps1010", "--tcp", "0", "--units", "5M"], "--units 5M is not possible: use at most"),
        (["serve", "d7-ps1010", "--tcp", "0", "--seed", "-1"], "--seed -1 is not possible"),
        (["serve", "d7-ps1010", "--tcp", "0", "--media", "nope"], "--media nope is not possible"),
        (["serve", "d7-ps1010", "--tcp", "0", "--name", "a/b"], "--name a/b is not possible"),
        (["serve", "d7-ps1010", "--tcp", "0", "--sms", "2"], "--sms 2 would be ignored"),
        (["serve", "d7-ps1010", "--tcp", "0", "--engine", "gpu"], "--tcp is not possible with --engine gpu"),
        (["serve", "d7-ps1010", "--vfio-user", "x", "--engine", "gpu", "--units", "2"], "--units would be ignored"),
        (["serve", "d7-ps1010", "--vfio-user", "x", "--engine", "gpu", "--sms", "5000"], "--sms 5000 is not possible"),
        (["serve", "d7-ps1010", "--vfio-user", "x", "--host-nqn", "nqn.x"], "--host-nqn is for NVMe/TCP"),
        (["serve", "d7-ps1010", "--tcp", "0", "--faults-file", "/nonexistent/x"], "the folder /nonexistent does not"),
        (["serve", "d7-ps1010", "--tcp", "0", "--faults-file", "."], "--faults-file .: cannot be read"),
        (["serve", "d7-ps1010", "--tcp", "0", "--set", "engine.cores=1000"], "core 1000 is not among"),
        (["serve", "d7-ps1010", "--tcp", "0", "--json-log", "/nonexistent/x"], "/nonexistent/x cannot be written"),
        (["serve", "--tcp", "0", "--config", "lab.toml", "--size", "1G"], "leave out --tcp, --size"),
        (["serve", "nope", "--tcp", "0"], "profile 'nope' is not known"),
        (["bench", "nvme-tcp:127.0.0.1:4420"], "nvme-tcp:ADDRESS:PORT/NQN"),
        (["bench", "nvme-tcp:x/nqn.y"], "ADDRESS:PORT"),
        (["bench", "vfio-user:"], "vfio-user:PATH"),
        (["bench", "vfio-user:/x", "--size", "1G"], "give it to flashmob serve"),
        (["bench", "vfio-user:/x", "--clock", "virtual"], "another process's"),
        (["bench", "vfio-user:/x", "--set", "timing.read_iops=1"], "give it to flashmob serve"),
        (["bench", "d7-ps1010", "--header-digest"], "behind NVMe/TCP"),
        (["bench", "nvme-tcp:1/nqn.x", "--host-key", "./nope"], "cannot be read"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run(lambda: cli.app(arguments, standalone_mode=True))
    assert code == 2
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("option", ["--tcp", "--metrics"])
def test_a_host_that_nobody_knows(
    option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    # The later of two equal options counts.
    arguments = ["serve", "unlimited", "--size", "4M", "--tcp", "0", option, "storage.example:4420"]
    assert cli.run(lambda: cli.app(arguments, standalone_mode=True)) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(f"error: {option} storage.example:4420: no host called storage.example is known")


def test_names_of_hosts_become_addresses() -> None:
    assert numeric_address("localhost:4420", "--tcp") in ("127.0.0.1:4420", "[::1]:4420")
    assert numeric_address("[::1]:0", "--tcp") == "[::1]:0"
    assert numeric_address("192.0.2.7:1", "--tcp") == "192.0.2.7:1"


def test_a_lab_is_refused_in_its_own_words(tmp_path: Path) -> None:
    path = write_lab(tmp_path, "[[ssd]]\nprofile = 'x'\nvfio_user = 'a'\nengine = 'gpu'\nunits = 2")
    with pytest.raises(ConfigError, match='units would be ignored: with engine = "gpu"'):
        load_lab(path)


def test_a_door_takes_the_load_and_nothing_of_a_device(tmp_path: Path) -> None:
    profile, options = prepare("nvme-tcp:4420/nqn.x", {"qd": 8, "seed": 3, "data_digest": True, "clock": "real"})
    assert profile.seed == 3
    assert options.target == "nvme-tcp:127.0.0.1:4420/nqn.x"
    assert options.queue_depth == 8
    assert options.data_digest


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
    JsonLog("-", out).write("ready")
    assert json.loads(out.getvalue())["event"] == "ready"
    full = JsonLog("/dev/full", out)
    for _ in range(3):
        full.write("stats")
    full.close()
    assert capsys.readouterr().err.count("records are missing") == 1
    with pytest.raises(ConfigError, match="JSON log"):
        JsonLog(str(tmp_path / "nope" / "log"), out)


def test_results_of_a_door(result_document: Any) -> None:
    unknown = ("model_iops", "target_ns", "processing_ns", "lateness_ns", "lateness_no_gaps_ns", "gaps")
    document = result_document(verdict="NOT JUDGED", verdict_cause="another process's", poll_gap_max_ns=None)
    document |= dict.fromkeys((*unknown, "late_by_copy_share"))
    result = Result.from_dict(document)
    assert result.target_ns is None
    assert result.gaps is None
    assert Result.from_json(result.to_json()) == result
    assert result.to_dict()["lateness_ns"] is None
    console = Console(width=120, file=StringIO())
    console.print(report(result))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "NOT JUDGED" in text
    assert "lateness" not in text
    with pytest.raises(ConfigError):
        Result.from_dict(result_document(host_gaps=3))
