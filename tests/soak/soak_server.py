"""A `flashmob serve` that the soak watches, and what processes hold as the kernel tells it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from soak_scene import SoakError

# Names of what hosts say of themselves, in the order of Use.
KINDS = ("memory_bytes", "descriptors", "mappings", "threads")


class Use(NamedTuple):
    memory: int
    descriptors: int
    mappings: int
    threads: int

    def most(self, other: Use) -> Use:
        return Use(*(max(pair) for pair in zip(self, other, strict=True)))


def text(use: Use) -> str:
    return f"{use.memory >> 20} MiB, {use.descriptors} descriptors, {use.mappings} mappings, {use.threads} threads"


def beyond(before: Use, now: Use, more: Use) -> str:
    """What has grown by more than it may."""
    return ", ".join(kind for kind in Use._fields if getattr(now, kind) > getattr(before, kind) + getattr(more, kind))


def use_of(pid: int) -> Use:
    process = Path("/proc") / str(pid)
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return Use(
        memory=int(status["VmRSS"].split()[0]) * 1024,
        descriptors=len(list((process / "fd").iterdir())),
        mappings=(process / "maps").read_text().count("\n"),
        threads=int(status["Threads"]),
    )


class Server:
    def __init__(self, folder: Path, name: str, lab: Path) -> None:
        self.name, self.lab = name, lab
        self.log = folder / f"{name}.log"
        command = [sys.executable, "-m", "flashmob", "serve", "--config", str(lab), "--interval", "200ms"]
        command += ["--metrics", "0", "--json-log", str(folder / f"{name}.jsonl")]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.doors: dict[str, str] = {}
        self._wait()

    def _wait(self) -> None:
        """Until it is ready; then the doors are known: "NAME vfio-user" -> address."""
        deadline = time.monotonic() + 60
        while "\nready\n" not in self.said():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise SoakError(f"the server {self.name} does not start: {self.said()}")
            time.sleep(0.05)
        for line in self.said().partition("ready\n")[0].splitlines():
            name, _, address = line.partition(" ")
            self.doors[f"{name} {address.partition(':')[0]}"] = address

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def pids(self) -> list[int]:
        children: list[int] = []
        for task in (Path("/proc") / str(self.process.pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                children += map(int, (task / "children").read_text().split())
        return [self.process.pid, *sorted(children)]

    def uses(self) -> dict[str, Use]:
        names = ("server", "isolated SSD", "another")
        return {name: use_of(pid) for name, pid in zip(names, self.pids(), strict=False)}

    def kill(self) -> None:
        if self.process.poll() is None:
            children = self.pids()[1:]
            self.process.kill()
            self.process.wait()
            _wait_for_end(children)

    def stop(self) -> None:
        self.process.terminate()
        begin = time.monotonic()
        code = self.process.wait(30)
        # On a machine that is busy with other things a server may end by force, which is what it promises: within 2 s.
        if code == 1 and "something holds up the end of the process" in self.said():
            print(f"the server {self.name} ended by force after {time.monotonic() - begin:.1f} s: a busy machine")
            return
        if code != 0:
            raise SoakError(
                f"the server {self.name} ended with {code} after {time.monotonic() - begin:.1f} s: {self.said()}"
            )


def _wait_for_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any((Path("/proc") / str(pid)).exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)


def quiet(server: Server) -> dict[str, Use]:
    """What it holds when two looks in a row agree, all but memory, which moves with every look at the figures."""
    last = server.uses()
    for _ in range(20):
        time.sleep(0.5)
        now = server.uses()
        if all(now[name][1:] == use[1:] for name, use in last.items() if name in now):
            return now
        last = now
    return last
