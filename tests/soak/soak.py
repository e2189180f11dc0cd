"""The mixed soak: `make soak`. Hosts of every kind at once, faults, kills, churn; data and resources are checked.

    .venv/bin/python tests/soak/soak.py [--minutes N] [--host build/release/tests/soak_host] [--seed N] [--folder DIR]

A `flashmob serve` with five SSDs (memory, file:, direct:, cow: in a process of its own, and one whose namespaces come
and go) and another one on a file, which is killed and started again, are used by hosts (tests/soak/hosts) over
vfio-user and NVMe/TCP (plain, with digests, DH-HMAC-CHAP, TLS), and by two with devices of their own. Hosts are killed,
leave suddenly and in order; faults come and go. Each host knows what every sector of its part must hold, its
predecessors' doing included. After each round all have left, every part is read once more, and the servers must hold
no more than after the first.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from soak_scene import FAULTS, Place, SoakError, make_lab, places_of
from soak_server import KINDS, Server, Use, beyond, quiet, text

# What a server may hold more than after the first round, without a host and at most with all of them.
ALONE = Use(memory=24 << 20, descriptors=2, mappings=24, threads=0)
LOADED = Use(memory=64 << 20, descriptors=64, mappings=512, threads=8)
# What a device of a host's own may leave behind in its process.
CLOSED = Use(memory=16 << 20, descriptors=1, mappings=24, threads=0)
LONGEST_LIFE_S = 8.0
PATIENCE_S = 120.0


class Soak:
    def __init__(self, folder: Path, host: Path, seed: int, *, spoil: bool = False) -> None:
        self.random = random.Random(seed)
        self.folder, self.host = folder, host
        self.done: Counter[str] = Counter()
        lab, phoenix = make_lab(folder)
        self.server = Server(folder, "lab", lab)
        self.phoenix = Server(folder, "phoenix", phoenix)
        doors = self.server.doors | self.phoenix.doors
        self.places = places_of(folder, doors, self.random)
        self.hosts: dict[Place, tuple[subprocess.Popen[bytes], float]] = {}
        self.peaks: dict[str, Use] = {}
        self.own_first: dict[str, Use] = {}
        self.faulty: set[str] = set()
        self.next_switch = 0.0
        self.spoil = spoil

    def run(self, seconds: float) -> str:
        begin = time.monotonic()
        # The first round warms up: threads, buffers and parts that are written for the first time.
        rounds = max(3, round(seconds / 60))
        before: dict[str, Use] = {}
        first_peaks: dict[str, Use] = {}
        for number in range(rounds):
            self.peaks = {}
            self.round(begin + seconds * (number + 1) / rounds)
            now = self.settled(before)
            if number == 0:
                before, first_peaks = now, self.peaks
                print(f"after the first round, with no host: {self.say(now)}", flush=True)
                continue
            self.compare(before, now, ALONE, "with no host")
            self.compare(first_peaks, self.peaks, LOADED, "at most with hosts")
            self.compare_own()
            print(f"round {number + 1} of {rounds}: {self.say(now)}", flush=True)
        for server in (self.server, self.phoenix):
            server.stop()
        return self.closing(time.monotonic() - begin, before, now)

    def round(self, end: float) -> None:
        restart = time.monotonic() + self.random.uniform(0.3, 0.7) * (end - time.monotonic())
        look = 0.0
        while time.monotonic() < end:
            for place in self.places:
                self.attend(place)
            self.switch_faults()
            if time.monotonic() > restart:
                restart = end
                self.phoenix.kill()
                self.phoenix = Server(self.folder, "phoenix", self.phoenix.lab)
                self.done["servers killed"] += 1
            if time.monotonic() > look:
                look = time.monotonic() + 1
                self.look()
            time.sleep(0.05)
        for name in list(self.faulty):
            self.set_faults(name, [])
        time.sleep(1)  # The server looks at the files a few times a second.
        self.send_home()
        self.check_all()

    def attend(self, place: Place) -> None:
        """Starts a host where none is, and ends one whose time has come: by SIGKILL, or as it was told to itself."""
        if place not in self.hosts:
            if time.monotonic() < place.rests_until:
                return
            life = self.random.uniform(0.5, LONGEST_LIFE_S)
            sudden = self.random.random() < 0.25
            place.is_victim = not place.stays and self.random.random() < 0.4
            self.hosts[place] = (
                self.start(place, place.role, None if place.stays or place.is_victim else life, sudden=sudden),
                time.monotonic() + life,
            )
            self.done["hosts"] += 1
            return
        process, until = self.hosts[place]
        if place.is_victim and time.monotonic() > until and process.poll() is None:
            process.kill()
            process.wait()
            self.done["hosts killed"] += 1
            self.leave(place)
        elif process.poll() is not None:
            self.judge(place, process)
            self.leave(place)

    def leave(self, place: Place) -> None:
        del self.hosts[place]
        # What the door still carries out of a host that has died ends before the next one relies on what it finds.
        place.rests_until = time.monotonic() + 0.5

    def start(self, place: Place, role: str, seconds: float | None, *, sudden: bool = False) -> subprocess.Popen[bytes]:
        words = [str(self.host), *place.words, "--role", role, "--seed", str(self.random.randrange(1 << 30))]
        if seconds is not None:
            words += ["--seconds", f"{seconds:.2f}"]
        words += ["--flags", place.flags + ("s" if sudden and role != "check" else "")]
        with place.log.open("wb") as log:
            return subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def judge(self, place: Place, process: subprocess.Popen[bytes]) -> None:
        if process.returncode != 0:
            said = place.log.read_text(errors="replace").strip()
            raise SoakError(f"a host of {place.name} ended with {process.returncode}: {said}")

    def send_home(self) -> None:
        for process, _ in self.hosts.values():
            process.send_signal(signal.SIGTERM)
        for place, (process, _) in list(self.hosts.items()):
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise SoakError(f"a host of {place.name} does not end") from None
            self.judge(place, process)
            del self.hosts[place]

    def check_all(self) -> None:
        """Every part once more, by hosts that tolerate nothing."""
        parts = [place for place in self.places if place.role == "data" and not place.is_own]
        checks = []
        for place in parts:
            flags, place.flags = place.flags, place.flags.replace("f", "").replace("v", "")
            checks.append((place, self.start(place, "check", None)))
            place.flags = flags
        for place, process in checks:
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise SoakError(f"{place.name} could not be read again") from None
            self.judge(place, process)
        self.done["parts read again"] += len(parts)

    def switch_faults(self) -> None:
        if time.monotonic() < self.next_switch:
            return
        self.next_switch = time.monotonic() + self.random.uniform(0.3, 1.5)
        name = self.random.choice(list(FAULTS))
        if name in self.faulty:
            self.set_faults(name, [])
        else:
            rules = self.random.sample(FAULTS[name], self.random.randint(1, 2))
            self.set_faults(name, ["corrupt on=read p=0.01"] if self.spoil else rules)

    def set_faults(self, name: str, rules: list[str]) -> None:
        file = self.folder / f"{name}.faults"
        fresh = file.with_suffix(".new")
        fresh.write_text("".join(f"{rule}\n" for rule in rules))
        fresh.replace(file)
        self.done["faults switched on" if rules else "faults switched off"] += 1
        (self.faulty.add if rules else self.faulty.discard)(name)

    def look(self) -> None:
        for server in (self.server, self.phoenix):
            if server.process.poll() is not None:
                raise SoakError(f"the server {server.name} has ended: {server.said()}")
        for name, use in self.server.uses().items():
            self.peaks[name] = self.peaks.get(name, use).most(use)

    def settled(self, before: dict[str, Use]) -> dict[str, Use]:
        """What the processes hold once hosts that have gone are forgotten; waits for that, not for ever."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            now = quiet(self.server)
            over = any(beyond(before[name], use, ALONE) for name, use in now.items() if name in before)
            if (
                (before and not over)
                or time.monotonic() > deadline
                or (not before and deadline - time.monotonic() < 50)
            ):
                return now
            time.sleep(0.5)

    def compare(self, before: dict[str, Use], now: dict[str, Use], more: Use, when: str) -> None:
        for name, use in now.items():
            kinds = beyond(before[name], use, more)
            if kinds:
                raise SoakError(f"{name} holds {text(use)} {when}, and held {text(before[name])}: too much {kinds}")

    def compare_own(self) -> None:
        for place in self.places:
            counts = place.counts(self.host)
            if place.is_own and counts["opens"]:
                use = Use(*(counts[kind] for kind in ("memory_bytes", "descriptors", "mappings", "threads")))
                self.compare({"": self.own_first.setdefault(place.name, use)}, {"": use}, CLOSED, f"({place.name})")

    def say(self, uses: dict[str, Use]) -> str:
        return "; ".join(f"{name}: {text(use)}" for name, use in uses.items())

    def closing(self, seconds: float, before: dict[str, Use], after: dict[str, Use]) -> str:
        total: Counter[str] = Counter()
        for place in self.places:
            total.update(place.counts(self.host))
        for kind in KINDS:
            del total[kind]
        if not all(
            total[kind] for kind in ("reads", "writes", "fua_writes", "zeroes", "discards", "flushes", "formats")
        ):
            raise SoakError(f"something was never done: {dict(total)}")
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in (self.done + total).items())
        held = "; ".join(f"{name}: from {text(before[name])} to {text(use)}" for name, use in after.items())
        return f"all was right in {seconds / 60:.1f} min: {counts}. Held with no host, {held}"

    def end(self) -> None:
        for process, _ in self.hosts.values():
            process.kill()
            process.wait()
        for server in (self.server, self.phoenix):
            server.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--host", type=Path, default=Path("build/release/tests/soak_host"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spoil", action="store_true", help="damage what is read, which it must find")
    parser.add_argument("--folder", type=Path, help="for files and logs; one below the system's for such, if left out")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="flashmob-soak-", dir=options.folder))
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    soak = None
    try:
        soak = Soak(folder, options.host.resolve(), options.seed, spoil=options.spoil)
        print(soak.run(options.minutes * 60), flush=True)
    except SoakError as error:
        print(f"FAILED: {error}\nwhat is left lies in {folder}", flush=True)
        return 1
    finally:
        if soak is not None:
            soak.end()
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
