"""What served SSDs do, as lines for a terminal: `flashmob serve` shows its own, `flashmob top` those of others.

Whatever a person copies, an address or an NQN, stands at the end of a line of its own and is left to the terminal to
wrap, which copies it in one piece; figures that do not fit are dropped instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.text import Text

from flashmob.registry import printable
from flashmob.report import VERDICT_STYLES
from flashmob.result import verdict_words
from flashmob.units import counted, format_duration, format_rate, format_size

_LABEL_CELLS = 10
_GAP = "   "


@dataclass
class View:
    """One served SSD as it is shown; `stats` has the fields of ServerStats, from this process or from a state file."""

    name: str
    profile: str
    addresses: Sequence[str]
    stats: Any
    silent: str = ""  # why it does not answer
    pid: int = 0
    extra: Sequence[str] = field(default_factory=tuple)


def door_lines(view: View) -> list[Text]:
    """What is said once: the SSD and how to reach it."""
    title = Text().append(view.name, style="bold cyan") + Text(f"  {view.profile}")
    if view.pid:
        title.append(f"  process {view.pid}", style="dim")
    return [title, *(Text(f"  {line}") for line in (*view.addresses, *view.extra))]


def figure_lines(view: View, width: int) -> list[Text]:
    """What changes: rates, times, verdict, faults and hosts."""
    stats = view.stats
    title = Text().append(view.name, style="bold cyan")
    title.append(f"  up {clock_time(stats.uptime_s)}", style="dim")
    if view.silent:
        # Its last figures would look like what it does now.
        title.append(f"  not answering: {view.silent}", style="yellow")
        names = [_host_lines(host, width)[0] for host in stats.hosts]
        return [title, _verdict_line(stats, silent=True), *names]
    lines = [
        title,
        _line(
            "rate",
            width,
            Text(format_rate(stats.iops), style="bold cyan"),
            *_moved(stats),
            f"depth {stats.queue_depth:.1f}",
            *_reads_and_writes(stats),
            f"{stats.completions:,} done",
        ),
        _line("latency", width, *_times(stats.latency), f"model {format_duration(stats.target.mean_ns, 3)}"),
        _line("lateness", width, *_times(stats.lateness), f"worst {format_duration(stats.lateness_max_ns, 3)}"),
    ]
    lines += [
        _line("error", width, *_times(stats.error_bound, "at most "), *_door(stats)),
        _line("engine", width, *_shares(stats)),
        _verdict_line(stats),
    ]
    for fault in stats.faults:
        line = _label("fault") + Text(fault.rule, style="yellow")
        line.append(f"{_GAP}hit {fault.injected:,} of {fault.matched:,} commands")
        lines.append(line)
    for host in stats.hosts:
        lines += _host_lines(host, width)
    lines += [_label("lease") + lease_text(lease) for lease in getattr(stats, "leases", ())]
    if (left := getattr(stats, "left", None)) and left.count:  # Older servers do not tell.
        who = f"{left.count} that left in the last {format_duration(1e9 * stats.interval_s, 3)}"
        lines += [_label("hosts") + Text(who), _line("", width, *_asked(left), *_moved(left))]
    elif not stats.hosts:
        lines.append(_label("hosts") + Text("none is attached", style="dim"))
    return lines


def plain_line(view: View) -> str:
    """One SSD and one look as one line, for pipes and logs of people."""
    stats = view.stats
    if view.silent:
        return f"{view.name} not answering: {view.silent}  {counted(len(stats.hosts), 'host')}  {_verdict(stats)}"
    parts = [
        f"{view.name} {format_rate(stats.iops)}",
        *_moved(stats),
        f"depth {stats.queue_depth:.1f}",
        f"latency {' '.join(_times(stats.latency)[:2])}",
        f"lateness {' '.join(_times(stats.lateness)[:2])}",
    ]
    parts.append(f"error at most {' '.join(_times(stats.error_bound)[:2])}")
    parts += [*_shares(stats), counted(len(stats.hosts), "host"), _verdict(stats)]
    return "  ".join(parts)


def verdict_style(verdict: str) -> str:
    """The colour of a verdict; "VALID (lateness only)" is a kind of VALID."""
    return VERDICT_STYLES.get(verdict, VERDICT_STYLES.get(verdict.partition(" (")[0], ""))


def clock_time(seconds: float) -> str:
    """Hours, minutes and seconds, as a clock shows them."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _label(text: str) -> Text:
    return Text().append(f"{text:<{_LABEL_CELLS}}", style="bold")


def _line(label: str, width: int, *parts: str | Text) -> Text:
    """A label and as many of the parts as fit; those that come first matter most."""
    line = _label(label)
    for index, part in enumerate(parts):
        piece = Text(_GAP if index else "") + (part if isinstance(part, Text) else Text(part))
        if index and line.cell_len + piece.cell_len > width:
            break
        line += piece
    return line


def _times(figures: Any, before: str = "") -> list[str]:
    """Mean and p99 first: the narrowest terminal shows these."""
    return [
        f"{before}mean {format_duration(figures.mean_ns, 3)}",
        f"p99 {format_duration(figures.p99_ns, 3)}",
        f"p50 {format_duration(figures.p50_ns, 3)}",
        f"p99.9 {format_duration(figures.p999_ns, 3)}",
    ]


def _door(stats: Any) -> list[str]:
    delay = getattr(stats, "door_delay", None)  # Older servers do not tell.
    if not delay or not delay.mean_ns:
        return []
    return [f"NVMe/TCP door mean {format_duration(delay.mean_ns, 3)}", f"p99 {format_duration(delay.p99_ns, 3)}"]


def _shares(stats: Any) -> list[str]:
    door = getattr(stats, "door_busy_share", 0)  # Older servers do not tell.
    return [
        f"busy {100 * stats.busy_share:.1f} %",
        *([f"NVMe/TCP door {100 * door:.1f} %"] if door else []),
        f"fetches that left commands behind {100 * stats.backlog_share:.2f} %",
    ]


def words_so_far(stats: Any) -> str:
    """The verdict since the start, as a benchmark's report says it; an older server did not tell the tolerance."""
    return verdict_words(stats.verdict_so_far, getattr(stats, "tolerance_share_so_far", None))


def _verdict(stats: Any) -> str:
    cause = f": {stats.verdict_so_far_cause}" if stats.verdict_so_far_cause else ""
    return f"{words_so_far(stats)}{cause}"


def _verdict_line(stats: Any, *, silent: bool = False) -> Text:
    line = _label("verdict") + Text(words_so_far(stats), style=verdict_style(stats.verdict_so_far))
    if stats.verdict_so_far_cause:
        line.append(f": {stats.verdict_so_far_cause}")
    if stats.verdict not in (stats.verdict_so_far, "NONE") and not silent:
        now = verdict_words(stats.verdict, getattr(stats, "tolerance_share", None))
        line.append(f"{_GAP}(just now {now})", style="dim")
    return line


def lease_text(lease: Any) -> Text:
    """A part of an SSD that is lent: what it is called, whose it is, and whether somebody uses it."""
    text = Text(printable(lease.name))
    text.append(f"{_GAP}uid {lease.uid}{_GAP}{format_size(lease.size_bytes)} from byte {lease.first_byte}")
    text.append(f"{_GAP}{'read-only' if lease.is_read_only else 'to write'}")
    text.append(f"{_GAP}{'in use' if lease.is_attached else 'not in use'}", style="" if lease.is_attached else "dim")
    if lease.refused:
        text.append(f"{_GAP}{counted(lease.refused, 'client')} turned away", style="yellow")
    return text


def _host_lines(host: Any, width: int) -> list[Text]:
    style = "" if host.state == "ready" else "bold red" if host.state == "fatal" else "yellow"
    return [
        _label("host") + Text(printable(host.host) or "?"),
        _line(
            "",
            width,
            Text(host.state, style=style),
            *_asked(host),
            host.door or "?",
            counted(host.queues, "queue"),
            f"controller {host.controller_id}",
            *_moved(host),
        ),
    ]


def _asked(rates: Any) -> list[str]:
    """Commands of every kind first: those of all hosts, and of those that left, add up to the SSD's."""
    return [*([format_rate(rates.iops)] if hasattr(rates, "iops") else []), *_reads_and_writes(rates)]


def _reads_and_writes(rates: Any) -> list[str]:
    if not hasattr(rates, "read_iops"):  # Older servers do not tell.
        return []
    return [f"reads {format_rate(rates.read_iops)}", f"writes {format_rate(rates.write_iops)}"]


def _moved(rates: Any) -> list[str]:
    return [f"read {_bandwidth(rates.read_bytes_per_s)}", f"write {_bandwidth(rates.written_bytes_per_s)}"]


def _bandwidth(bytes_per_s: float) -> str:
    return format_rate(bytes_per_s, "B/s")


class Picture:
    """The lower end of a terminal, drawn again and again.

    Only lines that have changed are written, so that what somebody has selected for copying stays selected.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._drawn: list[Text] = []

    def say(self, lines: Iterable[Text | str]) -> None:
        """Writes lines that stay, above the picture."""
        self._erase()
        for line in lines:
            self._console.print(line, soft_wrap=True, highlight=False)

    def draw(self, lines: Sequence[Text]) -> None:
        """Shows these lines in place of those before."""
        width, height = self._console.size
        wanted = _fitting(lines, width, height)
        before = self._drawn
        if [_rows(line, width) for line in wanted] != [_rows(line, width) for line in before]:
            self._erase()
            before = []
        up = sum(_rows(line, width) for line in before)
        text = f"\x1b[{up}A" if up else ""
        for index, line in enumerate(wanted):
            rows = _rows(line, width)
            if before and before[index] == line:
                text += f"\x1b[{rows}B"
                continue
            if before:  # What was there may have been longer.
                text += "\x1b[2K\x1b[B" * (rows - 1) + "\x1b[2K" + (f"\x1b[{rows - 1}A" if rows > 1 else "") + "\r"
            text += self._ansi(line) + "\r\n"
        self._console.file.write(text)
        self._console.file.flush()
        self._drawn = wanted

    def _ansi(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(line, soft_wrap=True, highlight=False, end="")
        return captured.get()

    def _erase(self) -> None:
        up = sum(_rows(line, self._console.width) for line in self._drawn)
        if up:
            self._console.file.write(f"\x1b[{up}A\r\x1b[J")
        self._drawn = []


def _rows(line: Text, width: int) -> int:
    return max(1, -(-line.cell_len // max(1, width)))


def _fitting(lines: Sequence[Text], width: int, height: int) -> list[Text]:
    """As many lines as the terminal can take back; what has scrolled away cannot be drawn again."""
    room = max(2, height - 2)
    if sum(_rows(line, width) for line in lines) <= room:
        return list(lines)
    kept: list[Text] = []
    for line in lines:
        room -= _rows(line, width)
        if room < 1:
            break
        kept.append(line)
    return [*kept, Text(f"{len(lines) - len(kept)} more lines: make the window higher", style="dim")[:width]]
