"""Serving without a device: lab files, addresses, metrics and what the command line refuses."""

from __future__ import annotations

import socket
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from flashmob import ConfigError, Result, cli
from flashmob.lab import checked_ssd, load_lab
from flashmob.network import numeric_address
from flashmob.report import report
from flashmob.runner import prepare
from flashmob.units import parse_address, split_address
from rich.console import Console

NQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"


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


@pytest.mark.parametrize("metrics", ["4420", "0.0.0.0:4420", "localhost:4420"])
def test_metrics_need_a_port_of_their_own(metrics: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["serve", "unlimited", "--size", "1M", "--tcp", "4420", "--metrics", metrics]
    assert cli.run(lambda: cli.app(command, standalone_mode=True)) == 2
    said = capsys.readouterr().err
    assert f"--metrics {parse_address(metrics)} is where 127.0.0.1:4420 serves NVMe/TCP" in said


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


@pytest.mark.parametrize(("mode", "good"), [(0o600, True), (0o640, True), (0o644, False), (0o660, False)])
def test_files_with_keys_are_for_their_owner(
    tmp_path: Path, mode: int, good: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = write_lab(tmp_path, "[[ssd]]\nprofile = 'x'\ntcp = 1\n[[ssd.hosts]]\nnqn = 'nqn.x'\nkey = 'DHHC-1:00:x:'")
    key = tmp_path / "key"
    key.write_text("DHHC-1:00:x:", encoding="ascii")
    lab.chmod(mode)
    key.chmod(mode)
    assert (
        cli.run(lambda: cli.app(["bench", "nvme-tcp:127.0.0.1:1/nqn.x", "--host-key", str(key)], standalone_mode=True))
        != 0
    )
    said = capsys.readouterr().err
    if good:
        load_lab(lab)
        assert "chmod" not in said
    else:
        with pytest.raises(ConfigError, match=f"holds a key, and other users may .*; chmod 600 {lab}"):
            load_lab(lab)
        assert "holds a key, and other users may" in " ".join(said.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ssd"),
        ("ssd = []", "ssd"),
        ("[[ssd]", "is not valid TOML"),
        ("[ssd]\nprofile = 'x'\ntcp = 1", "ssd is not possible: write [[ssd]] rather than [ssd]"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\n[ssd.hosts]\nnqn = 'nqn.x'", "write [[ssd.hosts]] rather than [ssd.hosts]"),
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
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\ntls = 'required'", "needs a key"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\ntls = 'never'\ntls_key = 'NVMeTLSkey-1:01:x:'", "'required' or 'allowed'"),
        ("[[ssd]]\nprofile = 'x'\nvfio_user = 'a'\ntls_key = 'NVMeTLSkey-1:01:x:'", "is for NVMe/TCP"),
        (
            "[[ssd]]\nprofile = 'x'\ntcp = 1\ntls_key = 'DHHC-1:secret'",
            "tls_key is not possible: write an NVMeTLSkey-1",
        ),
        ("[[ssd]]\nprofile = 'x'\nvfio_user = 'vfio-user:/run/x'", "names a kind of door; write /run/x"),
        ("[[ssd]]\nprofile = 'x'\nvfio_user = '/" + "a" * 100 + "'", "too long"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\n[[ssd]]\nprofile = 'x'\ntcp = 2", "two SSDs are called"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\n[[ssd]]\nname = 'b'\nprofile = 'x'\ntcp = 1", "two SSDs listen at"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\nallow = 'root'", "a level of read-only, io, admin, manage"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\nallow = 'gpu=io'", "a door of vfio-user, tcp"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\nallow = ['io', 'admin']", "all doors can have one level"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\nallow = 'vfio-user=io'", "names the door vfio-user, which ssd0 has not"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\n[[ssd.hosts]]\nnqn = 'nqn.x'\nallow = 'all'", "allow"),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\n[[ssd.hosts]]\nnqn = 'nqn.x'\nnamespaces = [0]", "namespaces"),
        (
            "[[ssd]]\nprofile = 'x'\ntcp = 1\n[[ssd.hosts]]\nnqn = 'nqn.x'\nkey = 'DHHC-1:00:x:'\n"
            "[[ssd.hosts]]\nnqn = 'nqn.x'\nallow = 'manage'",
            "names the host nqn.x twice",
        ),
        (
            "[[ssd]]\nprofile = 'x'\ntcp = 1\nhost_nqns = ['nqn.x']\n[[ssd.hosts]]\nnqn = 'nqn.x'\nallow = 'io'",
            "names the host nqn.x twice",
        ),
        (
            "[[ssd]]\nprofile = 'x'\ntcp = 1\nallow = 'manage'\n[[ssd.hosts]]\nnqn = 'nqn.x'\nnamespaces = [1]",
            "nqn.x may manage",
        ),
        ("[[ssd]]\nprofile = 'x'\nvfio_user = 'a'\nsocket_mode = '0666'", 'write "0660" (this user and the group)'),
        ("[[ssd]]\nprofile = 'x'\nvfio_user = 'a'\nsocket_mode = 660", 'write "0660" (this user and the group)'),
        ("[[ssd]]\nprofile = 'x'\ntcp = 1\nsocket_mode = '0660'", "socket_mode is for the socket of vfio-user"),
        ("metrics = 'x'\n[[ssd]]\nprofile = 'x'\ntcp = 1", "metrics = 'x' is not possible"),
    ],
)
def test_labs_that_are_wrong(tmp_path: Path, text: str, words: str) -> None:
    path = write_lab(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_lab(path)
    assert words in str(raised.value)
    assert not any(key in str(raised.value) for key in ("'secret'", ":secret")), "keys are not repeated"
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
        (["serve", "d7-ps1010", "--tcp", "0", "--interval", "99999999999s"], "at most 24h"),
        (["serve", "d7-ps1010", "--tcp", "0", "--metrics", "x"], "--metrics x"),
        (["serve", "d7-ps1010", "--tcp", "0", "--host-nqn", "me"], "--host-nqn me is not possible: write an NQN"),
        (["serve", "d7-ps1010", "--tcp", "0", "--allow", "all"], "--allow all is not possible: write [DOOR=]LEVEL"),
        (["serve", "d7-ps1010", "--tcp", "0", "--allow", "vfio-user=io"], "--allow names the door vfio-user"),
        (["serve", "unlimited", "--tcp", "0", "--allow", "io", "--allow", "admin"], "--allow io --allow admin is not"),
        (["faults", "/", "lose"], "error: / is a folder; name a file in it"),
        (["gpu", "serve", "unlimited"], "--socket is missing; write flashmob gpu serve --socket PATH; see"),
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
        (["serve", "d7-ps1010", "--tcp", "0", "--set", "engine.sms=2"], "engine.sms is for the GPU engine"),
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


@pytest.mark.parametrize("command", ["serve", "bench", "info", "explain"])
def test_a_lab_in_a_profiles_place_is_said_to_be_one(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_lab(tmp_path, "[[ssd]]\nprofile = 'd7-ps1010'\ntcp = '0'")
    assert cli.run(lambda: cli.app([command, str(path)], standalone_mode=True)) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said == f"error: {path} is a lab, not a profile; flashmob serve --config {path} serves its SSDs"


def test_a_key_of_the_other_engine_names_its_ssd(tmp_path: Path) -> None:
    path = write_lab(tmp_path, "[[ssd]]\nname = 'a'\nprofile = 'd7-ps1010'\ntcp = '0'\nset = { 'engine.sms' = 2 }")
    with pytest.raises(ConfigError, match=r"^a: engine\.sms is for the GPU engine"):
        load_lab(path).ssd[0].device()


def test_a_lab_is_refused_in_its_own_words(tmp_path: Path) -> None:
    path = write_lab(tmp_path, "[[ssd]]\nprofile = 'x'\nvfio_user = 'a'\nengine = 'gpu'\nunits = 2")
    with pytest.raises(ConfigError, match='units would be ignored: with engine = "gpu"'):
        load_lab(path)
    path = write_lab(tmp_path, "[[ssd]]\nprofile = 'x'\ntcp = '0'\nfaults = ['error']\nfaults_file = 'f'")
    with pytest.raises(ConfigError, match="faults and faults_file do not go together"):
        load_lab(path)


def test_a_door_takes_the_load_and_nothing_of_a_device(tmp_path: Path) -> None:
    profile, options = prepare("nvme-tcp:4420/nqn.x", {"qd": 8, "seed": 3, "data_digest": True, "clock": "real"})
    assert profile.seed == 3
    assert options.target == "nvme-tcp:127.0.0.1:4420/nqn.x"
    assert options.queue_depth == 8
    assert options.data_digest


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
