"""The demonstration: an SSD that does not exist, in virtual time, in real time, and with a file of the user's on it."""

from __future__ import annotations

import hashlib
import importlib
import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.rule import Rule
from rich.text import Text

from flashmob.columns import fitting
from flashmob.errors import EXIT_INTERRUPTED, EXIT_WRONG, ConfigError
from flashmob.options import free_memory_bytes
from flashmob.outputs import write_text
from flashmob.profiles import load_profile
from flashmob.progress import follow
from flashmob.report import VERDICT_STYLES, all_right, show
from flashmob.result import Result
from flashmob.runner import BenchRun, CtrlC, prepare
from flashmob.ssd import Future, Ssd
from flashmob.units import format_duration, format_rate, format_size

# From the fastest down; the demo ends with the first that this machine is true to.
_LADDER = ("kioxia-10m", "d7-ps1010")
_READ_BYTES = 256 << 10
_READS_IN_FLIGHT = 16


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What came of reading a file through the emulated SSD."""

    path: Path
    file_bytes: int
    seconds: float
    expected: str
    found: str

    @property
    def right(self) -> bool:
        """Whether the SHA-256 sums are equal."""
        return self.expected == self.found


def run_demo(media: str | None, out: Path, console: Console) -> int:
    """Runs the three parts and returns the exit code: 0, 1 if anything checked was wrong, 130 after Ctrl-C."""
    path = _file_of(media)
    out.mkdir(parents=True, exist_ok=True)
    started_s = time.monotonic()
    _say(console, Text("flashmob: an NVMe SSD that does not exist, and how true it was", style="bold"))

    results: list[Result] = []
    console.print(Rule("1  virtual time: exact on any machine, however busy", align="left"))
    console.print(Text("262,144 requesters on 256 queues and 100 million requests a second: no machine is that fast."))
    if not _run("storagenext-100m", _VIRTUAL, results, out, console):
        return EXIT_INTERRUPTED

    console.print(Rule("2  real time: random reads of a store in memory, each tenth one verified", align="left"))
    for name in _LADDER:
        if not _run(name, _real_options(name), results, out, console):
            return EXIT_INTERRUPTED
        if results[-1].verdict.startswith("VALID"):
            break
        console.print(Text(why_invalid(results[-1], last=name == _LADDER[-1])))

    console.print(Rule("3  a real file: read through the emulated SSD, copy on write", align="left"))
    read_back = read_file_back(path, console)

    console.print(Rule("summary", align="left"))
    for line in summary_lines(results, read_back, console.width):
        _say(console, line)
    _picture(results, out, console)
    seconds = time.monotonic() - started_s
    _say(console, f"\nAll of it took {seconds:.0f} s. Results: {out}")
    _say(console, "Next: flashmob bench --help")
    return 0 if read_back.right and all(all_right(result) for result in results) else EXIT_WRONG


def _say(console: Console, text: Text | str) -> None:
    """One line, which the terminal wraps if it must: what is copied from it stays in one piece."""
    console.print(text if isinstance(text, Text) else Text(text), soft_wrap=True)


def why_invalid(result: Result, *, last: bool) -> str:
    """What INVALID in real time means, in one sentence, and what is done about it."""
    device = result.device.get("profile", "this device")
    means = (
        f"INVALID says that this machine, busy or too slow, did not keep up with {device}: the figures are the "
        "machine's, not the SSD's. What part 1 found holds on any machine."
    )
    return means if last else f"{means} The next device asks for less:"


def _file_of(media: str | None) -> Path:
    if media is None:
        return default_file()
    kind, _, name = media.partition(":")
    path = Path(name).expanduser()
    if kind != "cow" or not name:
        raise ConfigError(f"--media {media!r} is not possible: use cow:FILE, the file that the demo reads back")
    if not path.is_file() or not os.access(path, os.R_OK) or path.stat().st_size == 0:
        raise ConfigError(f"--media {media!r} is not possible: {path} is not a readable file with content; name one")
    return path


def default_file() -> Path:
    """A file that certainly exists: flashmob's own compiled module."""
    module = importlib.import_module("flashmob._core")
    return Path(str(module.__file__))


_VIRTUAL: dict[str, Any] = {
    "bs": 512,
    "queues": 256,
    "requesters": 262_144,
    "ios": 3_000_000,
    "clock": "virtual",
    "media": "generated",
    "size": "64G",
    "verify": 1,
    "seed": 7,
}


def _real_options(name: str) -> dict[str, Any]:
    size = max(64 << 20, min(2 << 30, free_memory_bytes() // 4) >> 20 << 20)
    queues = 8 if name != "d7-ps1010" else 4
    return {
        "bs": 512,
        "queues": queues,
        "qd": 128,
        "size": size,
        "ramp": "500ms",
        "runtime": "4s",
        "verify": 10,
    }


def _run(name: str, options: dict[str, Any], results: list[Result], out: Path, console: Console) -> bool:
    """Runs one benchmark, keeps its result and reports it; whether it ran to its end."""
    device, load = prepare(name, {**options, "command": "flashmob demo"})
    run = BenchRun(device, load)
    finished = follow(run, console)
    result = run.result()
    results.append(result)
    # First the file: what was measured is not lost to a terminal that has gone.
    file = out / f"demo-{len(results)}-{result.device.get('profile', 'device')}.json"
    write_text(file, result.to_json() + "\n")
    show(console, result, stopped=not finished)
    return finished


def read_file_back(path: Path, console: Console) -> ReadBack:
    """Reads all of a file through a copy-on-write SSD over it, several reads in flight, and compares SHA-256 sums."""
    import numpy as np
    from numpy.typing import NDArray

    file_bytes = path.stat().st_size
    console.print(Text(f"{path}, {format_size(file_bytes)}"), soft_wrap=True)
    with path.open("rb") as file:
        expected = hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    started_s = time.monotonic()
    with (
        Ssd.from_profile(load_profile("d7-ps1010"), media=f"cow:{path}") as ssd,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        CtrlC() as ctrl_c,
    ):
        namespace = ssd.namespace
        task = progress.add_task("reading", total=file_bytes)
        queue = ssd.queue(_READS_IN_FLIGHT)
        flying: deque[tuple[Future, NDArray[np.uint8], int]] = deque()
        spare = [np.empty(_READ_BYTES, np.uint8) for _ in range(_READS_IN_FLIGHT)]
        offset = 0
        while offset < namespace.size_bytes or flying:
            if ctrl_c.pressed:
                raise KeyboardInterrupt
            while spare and offset < namespace.size_bytes:
                buffer = spare.pop()
                length = min(_READ_BYTES, namespace.size_bytes - offset)
                flying.append((queue.read(offset // namespace.lba_bytes, buffer[:length]), buffer, offset))
                offset += length
            future, buffer, at = flying.popleft()
            future.result(timeout_s=30)
            # The namespace ends on a block's boundary, the file may end before it.
            useful = max(0, min(_READ_BYTES, file_bytes - at))
            digest.update(buffer[:useful].data)
            spare.append(buffer)
            progress.advance(task, useful)
    seconds = time.monotonic() - started_s
    done = ReadBack(path, file_bytes, seconds, expected, digest.hexdigest())
    rate = f"{file_bytes / seconds / 1e6:,.0f} MB/s"
    console.print(Text(f"SHA-256 of file  {done.expected}", style="dim"), soft_wrap=True)
    style = "bold green" if done.right else "bold red"
    console.print(Text(f"through the SSD  {done.found}", style=style), soft_wrap=True)
    _say(console, f"read in {format_duration(seconds * 1e9)} ({rate}), one Python thread\n")
    return done


def summary_lines(results: list[Result], read_back: ReadBack, width: int) -> list[Text]:
    """A row a run, with as many columns as fit, and what became of the file."""
    headings = ("", "verdict", "rate", "time", "mean", "p99", "checked")
    rows = [[Text(heading, style="dim") for heading in headings]]
    for result in results:
        wrong = f"{result.verify_errors:,} WRONG" if result.verify_errors else f"{result.verified:,}"
        rows.append(
            [
                Text(str(result.device.get("profile", ""))),
                Text(result.verdict_text, style=VERDICT_STYLES.get(result.verdict, "")),
                Text(format_rate(result.iops), style="bold cyan"),
                Text(result.clock),
                Text(format_duration(result.latency_ns.mean, 3)),
                Text(format_duration(result.latency_ns.p99, 3)),
                Text(wrong, style="bold red" if result.verify_errors else ""),
            ]
        )
    rate = f"{read_back.file_bytes / read_back.seconds / 1e6:,.0f} MB/s"
    line = Text("EQUAL", style="bold green") if read_back.right else Text("DIFFERENT", style="bold red")
    line.append(f"  {format_size(read_back.file_bytes)} at {rate}: {read_back.path}", style="not bold default")
    return [*fitting(rows, width), Text("file  ") + line]


def _picture(results: list[Result], out: Path, console: Console) -> None:
    from flashmob.plotting import draw_results

    path = out / "demo.svg"
    try:
        draw_results(results, path, title="flashmob demo")
    except ConfigError:
        _say(console, Text("With matplotlib installed there would be a picture here too.", style="dim"))
        return
    _say(console, f"\nPicture: {path}")
