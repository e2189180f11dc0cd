"""`flashmob orchestrate` as a process of its own: consumers come, go, die and misbehave."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import flashmob
import pytest
from flashmob.errors import ConfigError
from flashmob.lending import control
from flashmob.lending.client import Connection, take
from flashmob.registry import servers
from raw_hosts import RawVfioHost, entry

MIB = 1 << 20
# All servers of a user are seen by all of that user's tests.
SSD = f"lent{os.getpid()}"
RULE = "leases = 16\nqueue_pairs = 32\nwrite = true\nkeep = true\n"


def config(folder: Path, rule: str = RULE, more: str = "") -> Path:
    """An orchestrator of one SSD of 32 MiB in a file, for whoever runs the tests."""
    path = folder / "lend.toml"
    path.write_text(
        f'socket = "lend.sock"\nleases = "l"\nstate = "state.json"\naudit = "audit.jsonl"\n{more}\n'
        '[[ssd]]\nname = "' + SSD + '"\nprofile = "unlimited"\nsize = "32M"\nmedia = "file:' + f'{folder}/disk.img"\n\n'
        f"[[allow]]\nuid = {os.geteuid()}\n{rule}"
    )
    return path


@contextmanager
def lending(folder: Path, rule: str = RULE, more: str = "") -> Iterator[subprocess.Popen[str]]:
    """A running orchestrator."""
    command = [sys.executable, "-m", "flashmob", "orchestrate", str(config(folder, rule, more))]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                if line == "ready\n":
                    break
                said.append(line)
            else:
                assert process.stderr is not None
                pytest.fail(f"it never was ready: {process.stderr.read()}")
            assert said == [f"lend {folder}/lend.sock\n"]
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an orchestrator, whose socket clients find by themselves."""
    monkeypatch.setenv("FLASHMOB_LEND", str(tmp_path / "lend.sock"))
    return tmp_path


def held(process: subprocess.Popen[str], what: str) -> int:
    """Its descriptors ("fd"), or its threads ("task")."""
    return sum(1 for _ in Path(f"/proc/{process.pid}/{what}").iterdir())


def audited(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]


def until(what: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + 30
    while not what():
        if time.monotonic() > deadline:
            pytest.fail(why)
        time.sleep(0.01)


class Drive(RawVfioHost):
    """A consumer that sends single commands by one queue pair."""

    SQ, CQ, DATA, LISTS, ENTRIES = 0x100000, 0x110000, 0x200000, 0x180000, 16

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.enable()
        self.create_queue(1, self.CQ, self.ENTRIES, self.SQ, self.ENTRIES)
        self._sent = 0

    def io(self, opcode: int, lba: int, blocks: int = 8, nsid: int = 1) -> int:
        """The status of a command with data at DATA, at most 256 KiB of it."""
        pages = -(-blocks * 512 // 4096)
        self.memory[self.LISTS : self.LISTS + 8 * pages] = struct.pack(
            f"<{pages}Q", *(self.DATA + 4096 * page for page in range(1, pages + 1))
        )
        prp2 = 0 if pages < 2 else self.DATA + 4096 if pages == 2 else self.LISTS
        words = (lba & 0xFFFFFFFF, lba >> 32, blocks - 1)
        at = self.SQ + 64 * (self._sent % self.ENTRIES)
        self.memory[at : at + 64] = entry(opcode, 7, nsid=nsid, prp1=self.DATA, prp2=prp2, dwords=words)
        slot, phase = self._sent % self.ENTRIES, 1 - self._sent // self.ENTRIES % 2
        self._sent += 1
        self.ring(1, self._sent % self.ENTRIES)
        deadline = time.monotonic() + 20
        while True:
            (status,) = struct.unpack_from("<H", self.memory, self.CQ + 16 * slot + 14)
            if status & 1 == phase:
                self.write_register(0x1000 + 8 + 4, (slot + 1) % self.ENTRIES)
                return int(status >> 1 & 0x7FF)
            assert time.monotonic() < deadline, "a command is not answered"
            time.sleep(0.0002)

    def put(self, lba: int, data: bytes) -> None:
        for at in range(0, len(data), 128 << 10):
            piece = data[at : at + (128 << 10)]
            self.memory[self.DATA : self.DATA + len(piece)] = piece
            assert self.io(0x01, lba + at // 512, len(piece) // 512) == 0

    def get(self, lba: int, size: int) -> bytes:
        out = b""
        for at in range(0, size, 128 << 10):
            length = min(size - at, 128 << 10)
            assert self.io(0x02, lba + at // 512, length // 512) == 0
            out += self.memory[self.DATA : self.DATA + length]
        return out


def leases() -> list[dict[str, Any]]:
    with Connection() as connection:
        return connection.leases()


def identity(drive: Drive) -> bytes:
    """Serial number, model and NQN."""
    assert drive.admin(0x06, prp1=drive.DATA, dwords=(1,))[0] == 0
    page = drive.memory[drive.DATA : drive.DATA + 4096]
    return bytes(page[4:64] + page[768:1024])


LBA_OUT_OF_RANGE, INVALID_FIELD, INVALID_OPCODE = 0x80, 0x02, 0x01
LOAD = {"queues": 1, "qd": 8, "ios": 500, "verify": 100, "rw": "randrw", "rwmixread": 50}


def test_two_consumers_write_their_parts(where: Path) -> None:
    with lending(where), take(SSD, size="4M") as one, take(SSD, size="8M", queue_pairs=2) as two:
        assert Path(one.path).stat().st_mode & 0o777 == 0o600
        for lease in (one, two):
            result = flashmob.bench(lease.target, **LOAD)
            assert result.verify_errors == 0
        found = {lease["name"]: lease for lease in leases()}
        assert found[one.name]["first_byte"] + 4 * MIB <= found[two.name]["first_byte"]
        assert min(lease["written_bytes"] for lease in found.values()) > 0
        until(lambda: bool(servers()[0]["stats"]["leases"]), "flashmob ls does not see them")


def test_neither_consumer_sees_the_others_bytes(where: Path) -> None:
    with lending(where), take(SSD, size="2M") as one, take(SSD, size="2M") as two:
        for lease, letter in ((one, b"1"), (two, b"2")):
            with Drive(lease.path) as drive:
                drive.put(0, letter * lease.size_bytes)
        for lease, letter in ((one, b"1"), (two, b"2")):
            with Drive(lease.path) as drive:
                assert drive.get(0, lease.size_bytes) == letter * lease.size_bytes
                # Write, Read, Write Uncorrectable, Compare, Write Zeroes, Verify.
                for opcode in (0x01, 0x02, 0x04, 0x05, 0x08, 0x0C):
                    assert drive.io(opcode, lease.size_bytes // 512 - 7) == LBA_OUT_OF_RANGE
                assert drive.io(0x02, 0, nsid=2) == INVALID_FIELD
                assert drive.admin(0x80, nsid=1)[0] == INVALID_OPCODE  # Format NVM
        first = leases()[0]["first_byte"]
    image = (where / "disk.img").read_bytes()
    assert image[first : first + 4 * MIB] == b"1" * 2 * MIB + b"2" * 2 * MIB
    assert set(image[:first] + image[first + 4 * MIB :]) == {0}


def test_a_lease_ends_with_the_connection_that_took_it(where: Path) -> None:
    with lending(where):
        with take(SSD, size="1M") as lease:
            path = Path(lease.path)
            assert path.is_socket()
        until(lambda: not path.exists(), "the lease does not end")
        assert leases() == []
        until(lambda: len(audited(where)) == 2, "it is not in the audit log")
        taken, ended = audited(where)
        assert (taken["event"], taken["uid"], taken["size_bytes"]) == ("taken", os.geteuid(), MIB)
        assert (ended["event"], ended["why"]) == ("ended", "whoever took it has gone")


HOLDER = """
import sys, flashmob
from flashmob.lending.client import take
lease = take(sys.argv[1], size="2M", queue_pairs=2)
print(lease.name, flush=True)
flashmob.bench(lease.target, queues=2, qd=64, runtime="10m", rw="randwrite")
"""


def test_consumers_that_are_killed_under_load_leave_nothing(where: Path) -> None:
    with lending(where) as daemon:
        with take(SSD, size="2M") as first:  # What a first client has the process open once stays.
            Drive(first.path).close()
        until(lambda: not leases(), "the lease outlives its connection")
        before = held(daemon, "fd"), held(daemon, "task")
        for _ in range(4):
            consumer = subprocess.Popen([sys.executable, "-c", HOLDER, SSD], text=True, stdout=subprocess.PIPE)
            with consumer:
                assert consumer.stdout is not None
                name = consumer.stdout.readline().strip()
                until(lambda: any(lease["written_bytes"] > MIB for lease in leases()), "it does not work")
                consumer.kill()
            until(lambda: not leases(), "the lease outlives its consumer")
            until(lambda n=name: any(r["event"] == "ended" and r["lease"] == n for r in audited(where)), "no audit")
            until(lambda: held(daemon, "fd") <= before[0], "it keeps descriptors")
            until(lambda: held(daemon, "task") <= before[1], "it keeps threads")
        with take(SSD) as lease:
            assert lease.size_bytes == 32 * MIB


def test_what_the_policy_does_not_allow_is_refused(where: Path) -> None:
    rule = 'leases = 2\nqueue_pairs = 3\nsize = "4M"\nfirst = "2M"\nend = "16M"\niops = 1000\nssds = ["' + SSD + '"]\n'
    with lending(where, rule), Connection() as connection:
        for wanted, why in (
            ({}, "may only read"),
            ({"read_only": True, "keep": True}, "may not keep"),
            ({"read_only": True, "queue_pairs": 4}, "may have 3 in all"),
            ({"read_only": True, "size": 8 * MIB}, "may have 4MiB in all|may have 4M"),
            ({"read_only": True, "first": 0, "size": MIB}, "may have bytes"),
            ({"read_only": True, "first": 16 * MIB, "size": MIB}, "may have bytes"),
            ({"read_only": True, "size": 1000}, "multiple of"),
            ({"read_only": True, "size": 0}, "no size"),
            ({"read_only": 1}, "true or false"),
            ({"queue_pairs": 0}, "whole number"),
            ({"queue_pairs": True}, "whole number"),
            ({"first": -MIB}, "whole number"),
            ({"colour": "red"}, "nothing that a lease has"),
        ):
            with pytest.raises(ConfigError, match=why):
                connection.ask("take", ssd=SSD, **wanted)
        with pytest.raises(ConfigError, match="no SSD called other"):
            connection.take("other")
        first = connection.take(SSD, read_only=True, size=2 * MIB, queue_pairs=1)
        assert (first["first_byte"], first["iops"]) == (2 * MIB, 1000)
        connection.take(SSD, read_only=True, size=2 * MIB, iops=10**9)
        with pytest.raises(ConfigError, match="as many as it may have"):
            connection.take(SSD, read_only=True)
        assert [lease["iops"] for lease in connection.leases()] == [1000, 1000]


def test_bytes_that_are_lent_to_write_are_nobody_elses(where: Path) -> None:
    with lending(where), Connection() as connection:
        connection.take(SSD, first=4 * MIB, size=4 * MIB)
        for first, read_only in ((MIB, False), (7 * MIB, True), (4 * MIB, True)):
            with pytest.raises(ConfigError, match="lent already"):
                connection.take(SSD, first=first, size=4 * MIB, read_only=read_only)
        for _ in range(2):
            connection.take(SSD, first=8 * MIB, size=4 * MIB, read_only=True)


def test_what_a_killed_orchestrator_left_is_cleared_away(where: Path) -> None:
    with lending(where) as daemon, take(SSD, size="1M") as lease:
        daemon.kill()
        daemon.wait()
        assert Path(lease.path).exists()
    with lending(where):
        assert list((where / "l").iterdir()) == []
        second = [sys.executable, "-m", "flashmob", "orchestrate", str(where / "second.toml")]
        text = (where / "lend.toml").read_text().replace("lend.sock", "second.sock").replace(SSD, SSD + "b")
        (where / "second.toml").write_text(text.replace("disk.img", "second.img"))
        done = subprocess.run(second, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert "is another orchestrator's" in done.stderr.replace("\n", " ")


def test_a_kept_lease_outlives_its_taker_and_the_orchestrator(where: Path) -> None:
    with lending(where):
        with Connection() as connection:
            kept = connection.take(SSD, size=2 * MIB, keep=True)
            connection.take(SSD, size=2 * MIB)
        with Drive(kept["path"]) as drive:
            drive.put(0, b"kept".ljust(4096))
            assert drive.io(0x00, 0, 1) == 0  # Flush
            before = identity(drive)
        until(lambda: [lease["name"] for lease in leases()] == [kept["name"]], "the other one stays, too")
    assert not Path(kept["path"]).exists()
    with lending(where) as daemon:
        assert [lease["name"] for lease in leases()] == [kept["name"]]
        with Drive(kept["path"]) as drive:
            assert drive.get(0, 4096)[:4] == b"kept"
            assert identity(drive) == before
        daemon.kill()
    with lending(where):
        with Connection() as connection:
            connection.release(kept["name"])
            assert connection.leases() == []
            with pytest.raises(ConfigError, match="no lease called"):
                connection.release(kept["name"])
        assert json.loads((where / "state.json").read_text())["leases"] == []


def test_another_groups_rule_brings_no_kept_lease_back(where: Path) -> None:
    with lending(where), Connection() as connection:
        connection.take(SSD, size=MIB, keep=True)
    with lending(where, "write = true\n\n[[allow]]\ngid = 54321\nwrite = true\nkeep = true\n"):
        assert leases() == []


def test_who_comes_while_somebody_is_there_is_turned_away(where: Path) -> None:
    with lending(where), take(SSD, size="1M") as lease:
        with Drive(lease.path), pytest.raises(ConnectionError):
            Drive(lease.path)
        for _ in range(20):  # Whoever comes after somebody who has gone need not wait.
            Drive(lease.path).close()
        assert leases()[0]["refused"] >= 1


def raw(folder: Path) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel.connect(str(folder / "lend.sock"))
    channel.settimeout(10)
    return channel


def test_what_a_hostile_client_says_is_answered_or_ends_it(where: Path) -> None:
    with lending(where) as daemon:
        with raw(where) as channel:
            for packet in (
                b"x",
                b"\xff" * 1000,
                b"[" * 10_000,
                b'{"op":' * 1000,
                b"{}",
                b"[]",
                b"null",
                b'"take"',
                b'{"op":"take"}',
                b'{"op":"take","ssd":5}',
                b'{"op":"take","ssd":"' + b"a" * 10_000 + b'"}',
                b'{"op":"take","ssd":"../../etc"}',
                b'{"op":"take","ssd":"' + SSD.encode() + b'","uid":-1}',
                b'{"op":"take","ssd":"' + SSD.encode() + b'","size":1e400}',
                b'{"op":"take","ssd":"' + SSD.encode() + b'","size":NaN}',
                b'{"op":"take","ssd":"' + SSD.encode() + b'","size":' + b"9" * 4000 + b"}",
                b'{"op":"take","ssd":"' + SSD.encode() + b'","size":' + b"9" * 5000 + b"}",
                b'{"op":"release"}',
                b'{"op":"release","lease":"\\u0000"}',
                b'{"op":"release","lease":["a"]}',
                b'{"op":"release","lease":"' + b"b" * 9000 + b'"}',
                b'{"op":{"op":1}}',
                b"y" * 100_000,
            ):
                channel.send(packet)
                answer = json.loads(channel.recv(1 << 20))
                assert answer["ok"] is False
                assert len(answer["error"]) < 400, packet[:80]
        # Descriptors that come along, many connections, half of them gone at once, and one that reads nothing.
        before = held(daemon, "fd")
        with raw(where) as channel, Path("/dev/null").open() as null:
            for _ in range(50):
                socket.send_fds(channel, [b"{}"], [null.fileno()] * 50)
                channel.recv(1 << 16)
            assert held(daemon, "fd") <= before + 1
        many = [raw(where) for _ in range(control.MAX_CONNECTIONS + 10)]
        for channel in many:
            channel.close()
        deaf = raw(where)
        deaf.setblocking(False)
        with suppress(BlockingIOError, BrokenPipeError, ConnectionError):
            for _ in range(100_000):
                deaf.send(b'{"op":"list"}')
        with take(SSD, size="1M") as lease:
            assert flashmob.bench(lease.target, **LOAD).verify_errors == 0
        deaf.close()
        until(lambda: held(daemon, "fd") <= before, "it keeps descriptors")
        assert daemon.poll() is None


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
OTHER = 61_234


def as_user(uid: int, code: Callable[[], Any]) -> str:
    """What a process of another user returns, or its error: a fork, for it may not read Python's files."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            said = str(code())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def asking(folder: Path, **request: Any) -> Callable[[], Any]:
    """Asks the orchestrator, by a connection of its own that ends with the process."""

    def ask() -> Any:
        channel = raw(folder)
        channel.send(json.dumps(request).encode())
        return json.loads(channel.recv(1 << 20))

    return ask


def attaching(path: str) -> Callable[[], str]:
    """Connects to a lease's socket and says the first thing that a client says."""

    def attach() -> str:
        RawVfioHost(path).close()
        return "in"

    return attach


@needs_root
def test_other_users(where: Path) -> None:
    with lending(where, RULE + f"\n[[allow]]\nuid = {OTHER}\nwrite = true\n"), Connection() as connection:
        for folder in (where, *where.parents):
            if folder != Path("/tmp") and "pytest" in str(folder):
                folder.chmod(0o755)
        mine = connection.take(SSD, size=MIB)
        # He sees his own leases alone, and releases no others.
        assert as_user(OTHER, asking(where, op="list")) == "{'ok': True, 'leases': []}"
        assert "no lease called" in as_user(OTHER, asking(where, op="release", lease=mine["name"]))
        assert "may have no lease" in as_user(OTHER + 1, asking(where, op="take", ssd=SSD))
        assert "only an operator" in as_user(OTHER, asking(where, op="take", ssd=SSD, uid=0))
        assert as_user(OTHER, attaching(mine["path"])).startswith("PermissionError")

        def takes_and_attaches() -> str:
            channel = raw(where)
            channel.send(json.dumps({"op": "take", "ssd": SSD, "size": MIB}).encode())
            return attaching(json.loads(channel.recv(1 << 20))["lease"]["path"])()

        assert as_user(OTHER, takes_and_attaches) == "in"
        until(lambda: len(connection.leases()) == 1, "his lease outlives his process")
        # His is his alone: others have no way to the socket, and root is turned away at the door.
        his = connection.take(SSD, size=MIB, uid=OTHER)
        assert Path(his["path"]).stat().st_uid == OTHER
        with pytest.raises(ConnectionError):
            Drive(his["path"])
        assert as_user(OTHER + 1, attaching(his["path"])).startswith("PermissionError")
        assert as_user(OTHER, lambda: Path(his["path"]).unlink()).startswith("PermissionError")
        assert as_user(OTHER, attaching(his["path"])) == "in"


def lease_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flashmob", "lease", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_line(where: Path) -> None:
    with lending(where):
        kept = lease_command("take", SSD, "--size", "1M", "--keep", "--json")
        assert kept.returncode == 0, kept.stderr
        name = json.loads(kept.stdout)["name"]
        assert name in lease_command("list").stdout
        run = lease_command("take", SSD, "--size", "1M", "--", "sh", "-c", "echo $FLASHMOB_TARGET; exit 7")
        assert (run.returncode, run.stdout[:11]) == (7, "vfio-user:/")
        assert lease_command("release", name).returncode == 0
        again = lease_command("release", name)
        assert again.returncode == 2
        assert "no lease called" in again.stderr
        holder = subprocess.Popen(
            [sys.executable, "-m", "flashmob", "lease", "take", SSD],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with holder:
            assert holder.stdout is not None
            assert holder.stderr is not None
            path = Path(holder.stdout.readline().strip())
            assert path.is_socket()
            lease_command("revoke", path.parent.name)
            assert holder.wait(20) == 1
            assert "taken back" in holder.stderr.read()
        assert [record["why"] for record in audited(where) if record["event"] == "ended"] == [
            "whoever took it has gone",
            "released",
            "released",
        ]
    nobody = lease_command("list")
    assert nobody.returncode == 2
    assert "no orchestrator answers" in nobody.stderr


def test_it_ends_in_order_with_a_consumer_at_work(where: Path) -> None:
    with lending(where) as daemon, take(SSD, size="1M") as lease, Drive(lease.path) as drive:
        assert drive.io(0x02, 0) == 0
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(10) == 0
        assert not (where / "lend.sock").exists()
        assert not Path(lease.path).exists()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('size = "32M"', 'size = "32M"\ntcp = 4420', "has no doors but its leases'"),
        ('size = "32M"', 'size = "32M"\nisolate = true', "isolate would be ignored"),
        ('size = "32M"', 'size = "32M"\nengine = "gpu"', "cannot lend"),
        ("uid =", "gid = 0\nuid =", "one uid or one gid"),
        ('state = "state.json"', "", "give state = FILE"),
        ("write = true", 'ssds = ["a"]', "no such"),
        ('socket = "lend.sock"', "", "socket"),
        ("leases = 16", "leases = 0", "leases"),
    ],
)
def test_mistakes_in_the_file(where: Path, old: str, new: str, why: str) -> None:
    path = config(where)
    path.write_text(path.read_text().replace(old, new))
    command = [sys.executable, "-m", "flashmob", "orchestrate", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert why in done.stderr.replace("\n", " ")
