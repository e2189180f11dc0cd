"""`flashmob serve` as a process of its own: hosts of other processes attach, and it stops when told."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import flashmob
import pytest
from flashmob.cli import app, run
from flashmob.errors import ConfigError
from flashmob.lab import checked_ssd, load_lab
from flashmob.registry import servers

LOAD = {"queues": 1, "qd": 8, "ramp": "10ms", "runtime": "200ms", "verify": 100}


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A server process, and what it printed before `ready`: name and door -> address."""
    command = [sys.executable, "-m", "flashmob", "serve", *arguments]
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            lines: dict[str, str] = {}
            for line in process.stdout:
                if line == "ready\n":
                    break
                name, _, address = line.strip().partition(" ")
                lines[f"{name} {address.partition(':')[0]}"] = address
            else:
                assert process.stderr is not None
                pytest.fail(f"it never was ready: {process.stderr.read()}")
            yield process, lines
        finally:
            if process.poll() is None:
                process.kill()


def stopped(process: subprocess.Popen[str], number: signal.Signals) -> int:
    process.send_signal(number)
    return process.wait(timeout=10)


def until_hosts(count: int) -> None:
    """Waits until the server says that so many hosts have attached and asked for something."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = [state["stats"]["hosts"] for state in servers()]
        if found and len(found[0]) == count and all(host["read_commands"] for host in found[0]):
            return
        time.sleep(0.05)
    pytest.fail("nobody has attached")


SMALL = ("unlimited", "--size", "4M", "--interval", "50ms", "--vfio-user", ".")


def test_two_hosts_of_an_ssd_on_the_gpu_engine(tmp_path: Path) -> None:
    with served(tmp_path, "d7-ps1010", "--size", "256K", "--vfio-user", ".", "--engine", "gpu", "--sms", "2") as (
        process,
        doors,
    ):
        address = doors["ssd0 vfio-user"]
        load = {"queues": 1, "qd": 4, "ios": 200, "verify": 100}
        flashmob.bench(address, **load)
        with ThreadPoolExecutor() as pool:
            results = list(pool.map(lambda _: flashmob.bench(address, **load), range(2)))
        assert [result.verify_errors for result in results] == [0, 0]
        assert min(result.verified for result in results) >= 200
        assert stopped(process, signal.SIGTERM) == 0


def test_a_gpu_engine_has_no_door_to_the_network(tmp_path: Path) -> None:
    given = {"profile": "d7-ps1010", "vfio_user": str(tmp_path), "engine": "gpu", "sms": 2}
    device = checked_ssd(given, "test").device()
    assert (device.engine.kind, device.engine.sms) == ("gpu", 2)
    assert device.controller.max_queue_pairs <= 512
    with pytest.raises(ConfigError, match="tcp is not possible with engine"):
        checked_ssd({**given, "tcp": 0}, "test").server()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_host_of_another_process(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path, *SMALL, "--metrics", "0", "--json-log", "log.jsonl") as (process, doors):
        result = flashmob.bench(f"vfio-user:{tmp_path / 'ssd0'}", **LOAD)
        assert result.verify_errors == 0
        assert result.verified > 10
        assert result.verdict == "NOT JUDGED"
        assert result.target_ns is None
        time.sleep(0.15)
        with urllib.request.urlopen(doors["metrics http"], timeout=5) as answer:
            text = answer.read().decode()
        total = next(line for line in text.splitlines() if line.startswith("flashmob_read_commands_total"))
        assert int(total.split()[-1]) >= result.ios
        assert stopped(process, number) == (-signal.SIGINT if number == signal.SIGINT else 0)
    assert not (tmp_path / "ssd0" / "cntrl").exists()
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert records[0]["event"] == "ready"
    assert records[0]["ssds"][0]["addresses"] == [doors["ssd0 vfio-user"]]
    assert records[0]["ssds"][0]["nqn"].startswith("nqn.2014-08.org.nvmexpress:uuid:")
    assert records[-1]["event"] == "stop"
    assert any(record["event"] == "stats" and record["hosts"] for record in records)


def test_two_ssds_of_one_lab(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(
        '[[ssd]]\nname = "a"\nprofile = "unlimited"\nsize = "4M"\nvfio_user = "."\n'
        '[[ssd]]\nname = "b"\nprofile = "unlimited"\nsize = "8M"\nvfio_user = "."\nset = {"engine.units" = 1}\n',
        encoding="utf-8",
    )
    with served(tmp_path, "--config", "lab.toml") as (process, doors):
        for name, size in (("a", 4 << 20), ("b", 8 << 20)):
            result = flashmob.bench(doors[f"{name} vfio-user"], **LOAD | {"ramp": None, "runtime": None, "ios": 100})
            assert result.device["namespaces"][0]["size_bytes"] == size
        assert stopped(process, signal.SIGTERM) == 0


def test_a_door_that_is_taken(tmp_path: Path) -> None:
    with served(tmp_path, *SMALL) as (process, _):
        command = [sys.executable, "-m", "flashmob", "serve", *SMALL]
        second = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=20, check=False)
        assert second.returncode == 2
        assert f"is served by process {process.pid} already" in second.stderr
        assert stopped(process, signal.SIGTERM) == 0


def test_the_server_dies_under_load(tmp_path: Path) -> None:
    with served(tmp_path, *SMALL) as (process, doors):
        command = [sys.executable, "-m", "flashmob", "bench", doors["ssd0 vfio-user"], "--runtime", "60s", "--qd", "4"]
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as host:
            until_hosts(1)
            process.kill()
            _, errors = host.communicate(timeout=20)
        assert host.returncode == 1
        assert "the device is gone" in errors
    with served(tmp_path, *SMALL) as (process, doors):  # the socket that was left behind is no obstacle
        assert flashmob.bench(doors["ssd0 vfio-user"], **LOAD | {"ramp": None, "runtime": None, "ios": 100}).ios >= 100
        assert stopped(process, signal.SIGTERM) == 0


def test_a_host_that_dies_leaves_no_trace(tmp_path: Path) -> None:
    with served(tmp_path, *SMALL, "--json-log", "log.jsonl") as (process, doors):
        command = [sys.executable, "-m", "flashmob", "bench", doors["ssd0 vfio-user"], "--runtime", "60s", "--qd", "4"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as host:
            until_hosts(1)
            host.kill()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            time.sleep(0.2)
            last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
            if last["hosts_seen"] == 1 and not last["hosts"]:
                break
        else:
            pytest.fail("its controller is still there")
        assert (
            flashmob.bench(doors["ssd0 vfio-user"], **LOAD | {"ramp": None, "runtime": None, "ios": 100}).verify_errors
            == 0
        )
        assert stopped(process, signal.SIGTERM) == 0


def test_a_served_ssd_is_switched_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rules"
    more = ("--faults-file", str(file), "--json-log", "log.jsonl")
    with served(tmp_path, *SMALL, *more) as (process, _):
        door = f"vfio-user:{tmp_path / 'ssd0'}"
        assert not flashmob.bench(door, **LOAD).errors
        assert run(lambda: app(["faults", str(file), "error on=read every=10"], standalone_mode=False)) == 0
        assert "1 rule in" in capsys.readouterr().out
        time.sleep(0.3)
        assert flashmob.bench(door, fill=False, **LOAD).errors
        assert run(lambda: app(["faults", str(file)], standalone_mode=False)) == 0
        time.sleep(0.3)
        assert not flashmob.bench(door, fill=False, **LOAD).errors
        assert stopped(process, signal.SIGTERM) == 0
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    said = [record["said"] for record in records if record["event"] == "faults"]
    assert said == ["ssd0 shows error on=read every=10", "ssd0 shows no faults"]
    hits = [record["faults"][0]["injected"] for record in records if record.get("faults")]
    assert hits[-1] > 0


def test_a_benchmark_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = ["--queues", "1", "--qd", "8", "--ramp", "10ms", "--runtime", "100ms"]

    def bench(*arguments: str) -> tuple[int, str]:
        code = run(lambda: app(["bench", *arguments, *load], standalone_mode=False))
        return code, "".join(capsys.readouterr())

    with served(tmp_path, *SMALL, "--tcp", "0", "--name", "mine") as (process, doors):
        code, said = bench("mine")
        assert (code, said.splitlines()[0]) == (0, f"mine is an SSD that you serve: {doors['mine vfio-user']}")
        # What only NVMe/TCP knows asks for that door.
        code, said = bench("mine", "--header-digest")
        assert (code, said.splitlines()[0]) == (0, f"mine is an SSD that you serve: {doors['mine nvme-tcp']}")
        assert flashmob.bench("mine", **LOAD).jobname == doors["mine vfio-user"]
        code, said = bench("mine", "--clock", "virtual")
        assert code == 2
        assert "another process's" in said
        stopped(process, signal.SIGTERM)
    code, said = bench("mine")
    assert (code, "'mine' is not known, neither as a profile nor as an SSD that you serve" in said) == (2, True)
    # A profile goes before an SSD of its name, and the report says that there are both.
    with served(tmp_path, *SMALL, "--name", "unlimited") as (process, doors):
        code, said = bench("unlimited", "--size", "1M")
        note = f"unlimited is a profile here; the SSD of that name that you serve is {doors['unlimited vfio-user']}"
        assert (code, said.splitlines()[0]) == (0, note)
        stopped(process, signal.SIGTERM)


def test_names_by_themselves(tmp_path: Path) -> None:
    """A second SSD without a name gets one, unless it would be behind the same door."""
    (tmp_path / "other").mkdir()
    with served(tmp_path, *SMALL) as (first, doors), served(tmp_path / "other", *SMALL) as (second, more):
        assert set(doors) == {"ssd0 vfio-user"}
        assert set(more) == {"ssd1 vfio-user"}
        assert [state["name"] for state in servers()] == ["ssd0", "ssd1"]
        command = [sys.executable, "-m", "flashmob", "serve", *SMALL, "--name", "ssd0"]
        third = subprocess.run(command, text=True, capture_output=True, timeout=20, check=False, cwd=tmp_path)
        assert third.returncode == 2
        assert f"an SSD called ssd0 is served by process {first.pid} already" in third.stderr
        assert stopped(first, signal.SIGTERM) == 0
        assert [state["name"] for state in servers()] == ["ssd1"]
        second.kill()
        second.wait()
        assert servers() == []


def test_info_of_a_served_ssd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "disk").write_bytes(b"x" * 8192)
    for media, blocks in (("memory", 8192), ("file:new", 8192), ("cow:disk", 16)):
        size = () if media.startswith("cow") else ("--size", "4M")
        with served(tmp_path, "unlimited", *size, "--vfio-user", ".", "--media", media) as (process, doors):
            assert run(lambda: app(["info", "ssd0"], standalone_mode=False)) == 0
            text = capsys.readouterr().out
            (state,) = servers()
            for words in (doors["ssd0 vfio-user"], f"subnqn    : {state['nqn']}", f"sn        : {state['serial']}"):
                assert words in text
            assert f"nsze     : {blocks:#x}" in text
            assert run(lambda: app(["info", "ssd0", "--json"], standalone_mode=False)) == 0
            found = json.loads(capsys.readouterr().out)
            assert found["namespaces"]["1"]["nsze"] == blocks
            assert found["served"]["pid"] == process.pid
            assert run(lambda: app(["info", "ssd0", "--size", "1G"], standalone_mode=False)) == 2
            assert "--size changes a profile" in capsys.readouterr().err
            assert stopped(process, signal.SIGTERM) == 0


@pytest.mark.parametrize("arguments", [("top",), ("top", "ssd0"), ("top", "--json")])
def test_ctrl_c_of_top(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with served(tmp_path, *SMALL) as (process, _):
        command = [sys.executable, "-m", "flashmob", *arguments]
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as top:
            assert top.stdout is not None
            line = top.stdout.readline()
            assert "ssd0" in line
            started_s = time.monotonic()
            top.send_signal(signal.SIGINT)
            _, errors = top.communicate(timeout=10)
            assert (top.returncode, errors) == (-signal.SIGINT, "")
            assert time.monotonic() - started_s < 2
        assert stopped(process, signal.SIGTERM) == 0


def test_top_ends_with_what_it_looks_at(tmp_path: Path) -> None:
    with served(tmp_path, *SMALL) as (process, _):
        command = [sys.executable, "-m", "flashmob", "top", "ssd0"]
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as top:
            assert top.stdout is not None
            top.stdout.readline()
            assert stopped(process, signal.SIGTERM) == 0
            out, errors = top.communicate(timeout=10)
        assert (top.returncode, errors) == (0, "")
        assert out.splitlines()[-1] == "ssd0 ended"


@pytest.mark.parametrize("after_s", [0.0, 5.0])
def test_ctrl_c_of_the_demo(tmp_path: Path, after_s: float) -> None:
    command = [sys.executable, "-m", "flashmob", "demo"]
    with subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() != "", "it has begun"
        time.sleep(after_s)
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=20)
    assert (demo.returncode, errors) == (-signal.SIGINT, "")


def test_rights_by_door_and_host(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(
        "[[ssd]]\nprofile = 'x'\ntcp = 1\nvfio_user = 'a'\nallow = ['io', 'vfio-user=manage']\n"
        "[[ssd.hosts]]\nnqn = 'nqn.reader'\nallow = 'read-only'\nnamespaces = [2]\n"
        "[[ssd.hosts]]\nnqn = 'nqn.other'\n"
        "[[ssd]]\nname = 'b'\nprofile = 'x'\ntcp = 2\n",
        encoding="utf-8",
    )
    lab = load_lab(tmp_path / "lab.toml")
    said, silent = (ssd.doors() for ssd in lab.ssd)
    assert (said.vfio_user_allow, said.tcp_allow) == ("manage", "io")
    assert said.host_rules == [("nqn.reader", "read-only", [2])]
    assert said.host_nqns == ["nqn.reader", "nqn.other"], "a rule is no way past the list of hosts"
    assert (silent.vfio_user_allow, silent.tcp_allow, silent.host_rules) == ("", "", [])


@pytest.mark.parametrize(
    ("said", "mode", "folder"), [((), 0o600, 0o700), (("0660",), 0o660, 0o750), (("600",), 0o600, 0o700)]
)
def test_the_group_comes_in_where_that_is_said(said: tuple[str, ...], mode: int, folder: int) -> None:
    with TemporaryDirectory() as name:
        above = Path(name)
        above.chmod(0o711)  # Others may pass through, as through /run.
        arguments = [*SMALL[:-1], "new", *(f"--socket-mode={one}" for one in said)]
        with served(above, *arguments) as (process, doors):
            assert list(doors) == ["ssd0 vfio-user"], doors
            path = Path(doors["ssd0 vfio-user"].partition(":")[2])
            modes = [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent, above / "new")]
            assert modes == [mode, folder, folder]
            if os.geteuid() == 0:
                assert _may_connect(path, os.getegid()) == (mode == 0o660)
                assert not _may_connect(path, os.getegid() + 12345), "nor does a stranger"
            assert stopped(process, signal.SIGTERM) == 0


def _may_connect(path: Path, group: int) -> bool:
    """Whether a user who owns nothing may connect as a member of a group alone."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            os.setgroups([])
            os.setgid(group)
            os.setuid(54321)
            with socket.socket(socket.AF_UNIX) as door:
                door.connect(str(path))
            code = 0
        except PermissionError:
            code = 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return code == 0


def test_a_socket_is_not_for_everybody(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: app(["serve", *SMALL[:-1], str(tmp_path), "--socket-mode", "0666"], standalone_mode=True)) == 2
    assert '--socket-mode 0666 is not possible: write "0660"' in " ".join(capfd.readouterr().err.split())
    assert not (tmp_path / "ssd0").exists()


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_stream_that_is_closed_holds_nothing_up(tmp_path: Path, closed: str) -> None:
    """Nor is its number given to a door or an image, into which a library would then write."""
    (tmp_path / "lab.toml").write_text(
        '[[ssd]]\nname = "own"\nprofile = "unlimited"\nsize = "4M"\nvfio_user = "."\nisolate = true\n', encoding="utf-8"
    )
    script = f'exec {closed}>&- "$@"'
    command = [sys.executable, "-m", "flashmob", "serve", "--config", "lab.toml", "--json-log", "log"]
    with subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", *command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            deadline = time.monotonic() + 60
            log = tmp_path / "log"
            while not (log.exists() and "stats" in log.read_text(encoding="utf-8")) and time.monotonic() < deadline:
                assert process.poll() is None
                time.sleep(0.05)
            assert Path(f"/proc/{process.pid}/fd/{closed}").readlink() == Path(os.devnull)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert err == b""
    assert out == b"" if closed == "1" else out.endswith(b"ready\n")
    if closed == "1":
        done = subprocess.run(
            ["/bin/sh", "-c", script, "sh", *command[:-1], "-"], cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode == 2
        assert done.stderr.startswith(b"error: JSON log - is standard output, and that is closed; ")
