"""What one host can do to another: a victim's latency alone, and beside hosts that mean it ill, in alternating windows.

    .venv/bin/python bench/attacks.py [--only TEXT] [--seconds 0.5] [--windows 5] [--compete]

Serves an SSD of its own. The attackers run where nobody else wants the core (SCHED_IDLE), so that what is left is what
the server does to the victim for them; with --compete they take processor time as anybody does. `computing` shows what
that alone costs on this machine. Each window has a 99th percentile; a row says their median, the least and the most,
alone and beside the attack, and the ratio of the medians. It is marked where the median is beyond twice what it is
alone plus 1 ms, and the exit status is then 1. Behind it: how much busier each thread of the server was beside the
attack, in percent of a core. All of it takes four minutes on a machine that does nothing else, which it needs.
"""

from __future__ import annotations

import argparse
import base64
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
from raw_hosts import CAPSULE_RESP, DISCOVERY, RawHost, RawVfioHost, command, entry

DEPTH, READ_BYTES = 8, 4096
VICTIM, ATTACKER, SECRETIVE = "nqn.victim", "nqn.attacker", "nqn.secretive"
LARGE_WRITES, UNREAD_LOG_PAGES, HALF_MESSAGES = 300, 400, 24
LONG_QUEUE = 65536
LONG_QUEUE_OF_READS = b"".join(entry(0x02, cid, nsid=1, prp1=1 << 20) for cid in range(LONG_QUEUE))
AUTHENTICATION_SEND, AUTHENTICATION_RECEIVE = 0x05, 0x06
QUICK = 0.002


@dataclass(frozen=True)
class Site:
    """Where the SSD is served."""

    tcp: str
    socket: str
    pid: int


# --- Victims: each has a function that does DEPTH things and gives their latencies ---


def tcp_reads(site: Site, stack: ExitStack) -> Callable[[], list[float]]:
    admin = stack.enter_context(RawHost(site.tcp))
    cntlid = admin.attach(VICTIM.encode(), kato_ms=120_000)
    io = stack.enter_context(RawHost(site.tcp))
    io.initialize()
    assert io.connect(VICTIM.encode(), qid=1, cntlid=cntlid, entries=64)[0] == 0
    reads = b"".join(
        command(0x02, cid, nsid=1, dwords=(cid * 8, 0, READ_BYTES // 512 - 1), wanted=READ_BYTES)
        for cid in range(DEPTH)
    )

    def turn() -> list[float]:
        start = time.perf_counter()
        io.socket.sendall(reads)
        latencies: list[float] = []
        while len(latencies) < DEPTH:
            if io.receive()[0] == CAPSULE_RESP:
                latencies.append(time.perf_counter() - start)
        return latencies

    return turn


def vfio_reads(site: Site, stack: ExitStack) -> Callable[[], list[float]]:
    host = stack.enter_context(RawVfioHost(site.socket))
    host.enable()
    entries, sq, cq, data = 64, host.QUEUES, host.QUEUES + 0x10000, host.QUEUES + 0x20000
    host.create_queue(1, cq, entries, sq, entries)
    tail = head = 0
    phase = 1

    def turn() -> list[float]:
        nonlocal tail, head, phase
        for cid in range(DEPTH):
            words = (cid * 8, 0, READ_BYTES // 512 - 1)
            at = sq + 64 * tail
            host.memory[at : at + 64] = entry(0x02, cid, nsid=1, prp1=data + cid * READ_BYTES, dwords=words)
            tail = (tail + 1) % entries
        start = time.perf_counter()
        host.ring(1, tail)
        latencies: list[float] = []
        while len(latencies) < DEPTH:
            if host.memory[cq + 16 * head + 14] & 1 != phase:
                os.sched_yield()
                continue
            latencies.append(time.perf_counter() - start)
            head = (head + 1) % entries
            phase ^= head == 0
        host.write_register(0x100C, head)
        return latencies

    return turn


def vfio_registers(site: Site, stack: ExitStack) -> Callable[[], list[float]]:
    host = stack.enter_context(RawVfioHost(site.socket))
    host.enable()

    def turn() -> list[float]:
        latencies = []
        for _ in range(DEPTH):
            start = time.perf_counter()
            host.read_register(0x1C)
            latencies.append(time.perf_counter() - start)
        return latencies

    return turn


# --- Attacks: generators, which begin again where the server has ended them ---

Attack = Iterator[None]


def computing(_site: Site, _stack: ExitStack) -> Attack:
    while True:
        sum(range(2000))
        yield


def tcp_storm(site: Site, _stack: ExitStack) -> Attack:
    name, _, port = site.tcp.removeprefix("nvme-tcp:").partition("/")[0].rpartition(":")
    while True:
        socket.create_connection((name, int(port)), 5).close()
        yield


def vfio_storm(site: Site, _stack: ExitStack) -> Attack:
    while True:
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.settimeout(5)
            visitor.connect(site.socket)
        yield


def unserved_r2ts(site: Site, stack: ExitStack) -> Attack:
    admin = stack.enter_context(RawHost(site.tcp))
    cntlid = admin.attach(ATTACKER.encode())
    io = stack.enter_context(RawHost(site.tcp))
    io.initialize()
    assert io.connect(ATTACKER.encode(), qid=1, cntlid=cntlid, entries=512)[0] == 0
    for cid in range(LARGE_WRITES):
        io.socket.sendall(command(0x01, cid, nsid=1, dwords=(0, 0, 2047), wanted=1 << 20))
    while True:
        yield
        time.sleep(QUICK)


def unread_answers(site: Site, stack: ExitStack) -> Attack:
    host = stack.enter_context(RawHost(site.tcp))
    host.initialize()
    assert host.connect(ATTACKER.encode(), nqn=DISCOVERY)[0] == 0
    host.enable()
    host.socket.settimeout(0.2)
    log_page = command(0x02, 7, dwords=(0x70 | 0x3FFF << 16,), wanted=65536)
    while True:
        yield
        with suppress(TimeoutError):  # part of a command may have gone, but no more follows
            host.socket.sendall(log_page * UNREAD_LOG_PAGES)
        while True:
            yield
            time.sleep(QUICK)


def full_queues(site: Site, stack: ExitStack) -> Attack:
    host = stack.enter_context(RawVfioHost(site.socket))
    host.enable()
    sq, cq = 8 << 20, 2 << 20
    host.memory[sq : sq + len(LONG_QUEUE_OF_READS)] = LONG_QUEUE_OF_READS
    for qid in range(1, 9):
        host.create_queue(qid, cq + qid * 4096, 2, sq, LONG_QUEUE)
        host.ring(qid, LONG_QUEUE - 1)
    while True:
        yield
        time.sleep(QUICK)


def challenges(site: Site, stack: ExitStack) -> Attack:
    # A Negotiate message: DH-HMAC-CHAP with SHA-256 and FFDHE-8192 and nothing else.
    offer = struct.pack("<BBHHBB", 0, 0, 0, 1, 0, 1) + struct.pack("<BBBB", 1, 0, 1, 1) + bytes([1]).ljust(30, b"\0")
    offer += bytes([5]).ljust(30, b"\0")
    where = 0xE9 << 24 | 1 << 16 | 1 << 8
    while True:
        hosts = [stack.enter_context(RawHost(site.tcp)) for _ in range(8)]
        for host in hosts:
            host.initialize()
            host.connect(SECRETIVE.encode())
            host.ask(command(0x7F, 2, nsid=AUTHENTICATION_SEND, dwords=(where, len(offer)), data=offer))
            words = (where, 4096)
            host.socket.sendall(command(0x7F, 3, nsid=AUTHENTICATION_RECEIVE, dwords=words, wanted=4096))
        for host in hosts:
            while host.receive()[0] != CAPSULE_RESP:
                pass
            host.socket.close()
            yield


def half_messages(site: Site, stack: ExitStack) -> Attack:
    with Path(os.devnull).open("rb") as null:
        while True:
            for _ in range(HALF_MESSAGES):
                visitor = stack.enter_context(socket.socket(socket.AF_UNIX))
                visitor.settimeout(5)
                visitor.connect(site.socket)
                socket.send_fds(visitor, [b"\1"], [null.fileno()] * 16)
                yield
            stack.close()


def map_storm(site: Site, stack: ExitStack) -> Attack:
    host = stack.enter_context(RawVfioHost(site.socket))
    while True:
        host.map(1 << 40, 1 << 20)
        host.unmap(1 << 40, 1 << 20)
        yield


def reset_loop(site: Site, stack: ExitStack) -> Attack:
    host = stack.enter_context(RawVfioHost(site.socket, shares=False))
    while True:
        host.enable()
        host.disable()
        yield


def format_loop(site: Site, stack: ExitStack) -> Attack:
    host = stack.enter_context(RawVfioHost(site.socket))
    host.enable()
    page = host.QUEUES
    blocks = (1 << 20) // 512
    host.memory[page : page + 16] = struct.pack("<QQ", blocks, blocks)
    status, nsid = host.admin(0x0D, prp1=page)  # Namespace Management, create; not shared
    assert status == 0, f"no namespace is made: {status:#x}"
    controllers = page + 4096
    host.admin(0x06, nsid=0, prp1=page, dwords=(1,))
    cntlid = struct.unpack_from("<H", host.memory, page + 78)[0]
    host.memory[controllers : controllers + 4] = struct.pack("<HH", 1, cntlid)
    status, _ = host.admin(0x15, nsid=nsid, prp1=controllers)
    assert status == 0, f"it is not attached: {status:#x}"
    # Namespaces outlive hosts.
    stack.callback(host.admin, 0x0D, nsid=nsid, dwords=(1,))
    while True:
        status, _ = host.admin(0x80, nsid=nsid)
        assert status == 0, f"it is not formatted: {status:#x}"
        yield


ATTACKS = {
    "computing (for comparison)": computing,
    "connect/close storm, NVMe/TCP": tcp_storm,
    "connect/close storm, vfio-user": vfio_storm,
    "R2Ts that nobody serves": unserved_r2ts,
    "discovery answers unread": unread_answers,
    "queues of 65,536, not consumed": full_queues,
    "FFDHE-8192 challenges": challenges,
    "half messages with descriptors": half_messages,
    "DMA map/unmap storm": map_storm,
    "resets of a message-mode client": reset_loop,
    "formats of a private namespace": format_loop,
}
VICTIMS = {"NVMe/TCP reads": tcp_reads, "vfio-user reads": vfio_reads, "vfio-user registers": vfio_registers}


class Attacker:
    """A process that attacks while it is told to, and lets go of everything in between."""

    def __init__(self, site: Site, attack: Callable[[Site, ExitStack], Attack], competes: bool) -> None:
        self._on = multiprocessing.Event()
        self._rounds = multiprocessing.Value("Q", 0)
        self._why = multiprocessing.Array("c", 120)
        self._process = multiprocessing.Process(target=self._run, args=(site, attack, competes), daemon=True)
        self._process.start()

    def _run(self, site: Site, attack: Callable[[Site, ExitStack], Attack], competes: bool) -> None:
        if not competes:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while True:
            self._on.wait()
            try:
                with ExitStack() as stack:
                    for _ in attack(site, stack):
                        self._rounds.value += 1
                        if not self._on.is_set():
                            break
            except (OSError, AssertionError, struct.error) as error:  # the server has had enough of it
                self._why.value = repr(error).encode()[:119]
                time.sleep(QUICK)

    def attack(self, on: bool) -> None:
        (self._on.set if on else self._on.clear)()

    def end(self) -> str:
        """What became of it: how often it did what it does, or why it never did."""
        self._process.kill()
        self._process.join()
        return str(self._rounds.value) if self._rounds.value else "never: " + self._why.value.decode()


def p99_ms(latencies: list[float]) -> float:
    return sorted(latencies)[int(len(latencies) * 0.99)] * 1e3


def spread(windows: list[list[float]]) -> str:
    """The median of the windows' 99th percentiles, ms, and the least and the most."""
    each = [p99_ms(window) for window in windows]
    return f"{median(each):8.2f} {f'({min(each):.2f} to {max(each):.2f})':18}"


def measure(turn: Callable[[], list[float]], seconds: float) -> list[float]:
    latencies: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        latencies += turn()
    return latencies


def thread_ticks(pid: int) -> Counter[str]:
    """Processor time of a process's threads, by name."""
    ticks: Counter[str] = Counter()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            name, _, rest = task.joinpath("stat").read_text().partition("(")[2].rpartition(")")
            ticks[name] += sum(int(field) for field in rest.split()[11:13])
    return ticks


def percent_more(alone: Counter[str], beside: Counter[str], seconds: float) -> str:
    """By which part of a core each thread was busier; not those that hardly were."""
    hertz = os.sysconf("SC_CLK_TCK")
    more = {name: round(100 * (beside[name] - alone[name]) / hertz / seconds) for name in beside | alone}
    return ", ".join(f"{name} {by:+}" for name, by in sorted(more.items(), key=lambda one: -one[1]) if abs(by) >= 2)


def compare(site: Site, attack: str, victim: str, options: argparse.Namespace) -> bool:
    """One line; whether the victim got what it should."""
    seconds, windows = options.seconds, options.windows
    work = {"alone": Counter[str](), "beside": Counter[str]()}

    def window(kind: str) -> list[float]:
        before = thread_ticks(site.pid)
        latencies = measure(turn, seconds)
        work[kind] += thread_ticks(site.pid) - before
        return latencies

    alone: list[list[float]] = []  # by window
    beside: list[list[float]] = []
    attacker = Attacker(site, ATTACKS[attack], options.compete)
    trouble = ""
    try:
        with ExitStack() as stack:
            turn = VICTIMS[victim](site, stack)
            measure(turn, seconds / 4)
            for _ in range(windows):
                alone.append(window("alone"))
                attacker.attack(True)
                time.sleep(0.1)  # the attack gets going
                beside.append(window("beside"))
                attacker.attack(False)
                time.sleep(0.1)
    except (OSError, AssertionError) as error:
        trouble = f"the victim failed: {error!r}"
    rounds = attacker.end()
    if trouble or not all(alone) or not all(beside):
        print(f"{attack:32} {victim:20} {trouble or 'nothing was measured'}", flush=True)
        return False
    before, after = (median([p99_ms(window) for window in windows_of]) for windows_of in (alone, beside))
    fine = after <= 2 * before + 1 and rounds.isdigit()  # an attack that never was shows nothing
    mark = "" if fine or not rounds.isdigit() else "  BEYOND 2x + 1 ms"
    figures = f"{spread(alone)} {spread(beside)} {after / before:6.1f}x"
    busier = percent_more(work["alone"], work["beside"], seconds * windows)
    print(f"{attack:32} {victim:20} {figures}  {rounds:9} {busier}{mark}", flush=True)
    return fine


def lab_file(folder: Path) -> Path:
    """An SSD with both doors. A secret is needed for the challenges, and so a list of hosts."""
    key = os.urandom(32)
    secret = base64.b64encode(key + struct.pack("<I", zlib.crc32(key))).decode()
    text = f"""[[ssd]]
name = "attacked"
profile = "unlimited"
size = "64M"
set = {{ "subsystem.spare_capacity_bytes" = 67108864 }}
tcp = "127.0.0.1:0"
vfio_user = "{folder}"
allow = "manage"
host_nqns = ["{VICTIM}", "{ATTACKER}"]
[[ssd.hosts]]
nqn = "{SECRETIVE}"
key = "DHHC-1:00:{secret}:"
"""
    lab = folder / "lab.toml"
    lab.touch(0o600)
    lab.write_text(text)
    return lab


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="attacks and victims in whose names this occurs")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a window")
    parser.add_argument("--windows", type=int, default=5, help="of each kind, at least 1")
    parser.add_argument("--compete", action="store_true", help="attackers take processor time as others do")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = (folder / "log").open("w+")
        arguments = ["serve", "--config", str(lab_file(folder))]
        server = subprocess.Popen(
            [sys.executable, "-m", "flashmob", *arguments], cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            said: list[str] = []
            for _ in range(300):
                said = (folder / "log").read_text().splitlines()
                if "ready" in said or server.poll() is not None:
                    break
                time.sleep(0.1)
            doors = [line.partition(" ")[2] for line in said]
            tcp = next((door for door in doors if door.startswith("nvme-tcp:")), "")
            if not tcp:
                print("\n".join(said))
                return 2
            site = Site(tcp, str(folder / "attacked" / "cntrl"), server.pid)
            columns = f"{'p99 alone, ms':27} {'p99 beside, ms':27} {'ratio':>7}  {'rounds':9} threads' time"
            print(f"{'attack':32} {'victim':20} {columns}")
            beyond = 0
            for attack in ATTACKS:
                for victim in VICTIMS:
                    if options.only in f"{attack}, {victim}":
                        beyond += not compare(site, attack, victim, options)
            if server.poll() is not None:
                print("the server has ended:\n" + (folder / "log").read_text()[-2000:])
                return 2
            return int(beyond != 0)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(10)
            log.close()


if __name__ == "__main__":
    sys.exit(main())
