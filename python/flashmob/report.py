"""What a benchmark looks like in the terminal when it is done.

Everything fits 80 columns but what a person may copy (a path, a door's name, a rule): that stands at the end of its
line and is neither cut nor broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from flashmob.checks import PCI
from flashmob.errors import status_name
from flashmob.options import is_target
from flashmob.result import Distribution, Gaps, Model, Result, Tolerance
from flashmob.trace_report import trace_lines
from flashmob.units import counted, format_duration, format_rate, format_size

# Sizes that the core writes to the byte.
_BYTES = re.compile(r"\b([0-9]{4,}) bytes\b", re.ASCII)
_LABEL_CELLS = 14
VERDICT_STYLES = {
    "VALID": "bold green",
    "VALID (lateness only)": "bold green",
    "INVALID": "bold red",
    "NONE": "bold yellow",
    "NOT JUDGED": "bold yellow",
}


def show(
    console: Console,
    result: Result,
    *,
    title: str = "",
    stopped: bool = False,
    store: str = "",
    verify_asked: bool = False,
) -> None:
    """Prints the report; what can be copied runs on beyond the console's width rather than being cut."""
    made = report(result, title=title, stopped=stopped, store=store, verify_asked=verify_asked)
    console.print(made, crop=False)


def report(
    result: Result, *, title: str = "", stopped: bool = False, store: str = "", verify_asked: bool = False
) -> RenderableType:
    """The final report: rates, latencies, fidelity, verification, verdict.

    Args:
        result: what to show.
        title: in place of the device's name.
        stopped: the run was cut short.
        store: "1 GiB of the profile's 1.92 TB", where the benchmark took less than the profile has.
        verify_asked: whether verification was asked for, so that its absence is an error.
    """
    device = result.device.get("profile") or result.jobname
    served = "a drive of this machine" if device.startswith(PCI) else "a device of another process"
    what = served if is_target(device) else device
    rule = VERDICT_STYLES.get(result.verdict, "white").replace("bold ", "")
    heading = Rule(Text(title or f"{what} in {result.clock} time", style="bold"), align="left", style=rule)
    if not result.ios:
        # Figures of nothing are no figures; what failed, and what was left waiting, still says why.
        checks = [] if stopped else _checks(result, verify_asked)
        return Group(heading, *_load(result, store)[:-1], *checks, _nothing(result, stopped))
    return Group(
        heading,
        *_load(result, store),
        Text(),
        _rates(result),
        *_beside_model(result),
        Text(),
        _latencies(result),
        Text(),
        *_host(result),
        *_checks(result, verify_asked),
        *([_line("stopped", Text("before its end; figures cover what was done", style="yellow"))] if stopped else []),
        _verdict(result),
    )


def _nothing(result: Result, stopped: bool) -> RenderableType:
    """Why there are no figures."""
    if stopped:
        return _line("stopped", Text("before measuring began; nothing was measured", style="yellow"))
    if result.verdict_cause:
        return _verdict(result)
    return _line("verdict", Text("NONE: no request succeeded in the measured time", style=VERDICT_STYLES["NONE"]))


def _line(label: str, text: Text | str) -> RenderableType:
    """A label and a text that wraps beside it."""
    grid = Table.grid(padding=0)
    grid.add_column(style="bold", width=_LABEL_CELLS, no_wrap=True)
    grid.add_column()
    grid.add_row(label, text)
    return grid


def _whole(label: str, text: Text | str) -> Text:
    """A label and a text that may be copied: it is never broken."""
    line = Text(f"{label:<{_LABEL_CELLS}}", style="bold", no_wrap=True, overflow="ignore")
    line.append_text(Text("", style="not bold") + (text if isinstance(text, Text) else Text(text)))
    return line


def describe_load(result: Result) -> str:
    """One line: what was asked of the device."""
    options = result.options
    if options.get("trace_path"):
        return f"replay of {options['trace_path']}"
    what = f"{result.rw} {_bs(result.bs)}".strip()
    if result.rw in ("rw", "randrw") and options.get("read_share") is not None:
        what += f" ({100 * float(options['read_share']):.3g} % reads)"
    queues = "? queues" if options.get("queues") is None else counted(options["queues"], "queue")
    if options.get("rate_iops"):
        return f"{what}, {format_rate(float(options['rate_iops']))} offered on {queues}"
    if options.get("requesters"):
        return f"{what}, {counted(options['requesters'], 'requester')} on {queues}{_depth_of_requesters(options)}"
    return f"{what}, {queues} × {options.get('queue_depth', '?')} in flight"


def _depth_of_requesters(options: Mapping[str, Any]) -> str:
    """How many of a queue's requesters can be in flight at once, unless there is a slot for each."""
    requesters, queues, depth = (int(options.get(name) or 0) for name in ("requesters", "queues", "queue_depth"))
    if not queues or not depth or depth >= -(-requesters // queues):
        return ""
    return f", at most {depth:,} in flight {'each' if queues > 1 else 'at once'}"


def _bs(bs: object) -> str:
    text = str(bs or "")
    return format_size(int(text)) if text.isascii() and text.isdigit() else text


def _load(result: Result, store: str) -> list[RenderableType]:
    replay = bool(result.options.get("trace_path"))
    lines: list[RenderableType] = []
    if is_target(result.jobname):
        lines.append(_whole("device", result.jobname))
    lines.append((_whole if replay else _line)("load", describe_load(result)))
    # The trace's lines are short, but for names of disks, which can be copied to --trace-disk.
    for number, text in enumerate(trace_lines(result.to_dict())):
        lines.append(_whole("" if number else "trace", text))
    if store:
        lines.append(_line("store", f"{store}; --size changes it"))
    if not result.data_moved:
        lines.append(_line("data", Text("none was moved: frontend only", style="yellow")))
    lines.append(
        _line(
            "took",
            f"{result.wall_seconds:.2f} s, {format_duration(result.runtime_seconds * 1e9)} of them measured"
            if result.clock == "real"
            else f"{result.wall_seconds:.2f} s for {format_duration(result.runtime_seconds * 1e9)} of virtual time",
        )
    )
    return lines


class _Table:
    """Figures below headings. Where the console is too narrow, columns go rather than parts of figures."""

    def __init__(self, *headings: str, between: int = 3, first_cells: int = 0, drop: Sequence[str] = ()) -> None:
        """`drop`: headings that go first where there is no room, in this order; others follow from the right."""
        self._headings = headings
        self._between = between
        self._first_cells = first_cells
        self._drop = [*drop, *(heading for heading in reversed(headings[1:]) if heading not in drop)]
        self._rows: list[tuple[str | Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        """The label, and a figure below each heading."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table with as many columns as fit, and less between them before any goes."""
        if options.ascii_only:
            # Two cells for one: put in here, they do not push the figures aside.
            self._rows = [(str(row[0]).replace("≤", "<="), *row[1:]) for row in self._rows]
        table = self._of(self._headings, self._between)
        for dropped in range(len(self._drop) + 1):
            if table.__rich_measure__(console, options.update(max_width=1000)).maximum <= options.max_width:
                break
            gone = self._drop[:dropped]
            table = self._of([heading for heading in self._headings if heading not in gone], 1)
        yield table

    def _of(self, headings: Sequence[str], between: int) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, between, 0, 0), header_style="dim")
        table.add_column("", no_wrap=True, min_width=_LABEL_CELLS - between, style="bold")
        for heading in headings:
            wide = self._first_cells if heading == self._headings[0] and between == self._between else 0
            table.add_column(heading, justify="right", no_wrap=True, min_width=wide or None)
        kept = [0, *(1 + index for index, heading in enumerate(self._headings) if heading in headings)]
        for row in self._rows:
            table.add_row(*(row[index] for index in kept))
        return table


def _rates(result: Result) -> _Table:
    table = _Table("requests", "rate", "bandwidth", first_cells=13)
    rows = []
    if result.read is not None and result.write is not None:
        rows = [
            ("reads", result.read.ios, result.read.iops, result.read.bw_bytes),
            ("writes", result.write.ios, result.write.iops, result.write.bw_bytes),
        ]
    # A trace's flushes and deallocations are neither.
    kind = "all"
    if not rows and result.ios in (result.read_ios, result.write_ios):
        kind = "reads" if result.read_ios else "writes"
    for name, ios, iops, bw_bytes in [*rows, (kind, result.ios, result.iops, result.bw_bytes)]:
        table.add_row(name, f"{ios:,}", Text(format_rate(iops), style="bold cyan"), f"{bw_bytes / 1e9:.3f} GB/s")
    return table


def _directions_beside_model(
    result: Result, model: Model, allowed: Tolerance | None
) -> Iterator[tuple[str, float, float, float]]:
    """Reads and writes by themselves, where they are judged so: name, the host's, the model's, what is allowed."""
    if allowed is None:
        return
    for name, host, ideal, mean_ns, p99_ns in (
        ("read", result.read, model.read_latency_ns, allowed.read_mean_ns, allowed.read_p99_ns),
        ("write", result.write, model.write_latency_ns, allowed.write_mean_ns, allowed.write_p99_ns),
    ):
        if host is None or ideal is None:
            continue
        if mean_ns is not None:
            yield f"{name} mean", host.latency_ns.mean, ideal.mean, mean_ns
        if p99_ns is not None:
            yield f"{name} p99", host.latency_ns.p99, ideal.p99, p99_ns


def _beside_model(result: Result) -> list[RenderableType]:
    """What the host saw beside what the model gives for the same arrivals, and by how much they may differ."""
    rows: list[tuple[str, str, str, str, str, bool]] = []
    model, allowed = result.model, result.tolerance
    model_iops = model.iops if model is not None else result.model_iops
    if model_iops:
        share = (result.iops - model_iops) / model_iops
        # Adding zero turns a negative zero, which would print as -0.00 %, into a positive one.
        off, limit = round(100 * share, 2) + 0.0, allowed.iops_share if allowed is not None else None
        beyond = limit is not None and abs(share) > limit
        rows.append(
            (
                "rate",
                format_rate(result.iops),
                format_rate(model_iops),
                f"{off:+.2f} %",
                "" if limit is None else f"{100 * limit:.2f} %",
                beyond,
            )
        )
    if model is not None:
        for name, host_ns, model_ns, limit_ns in (
            ("mean", result.latency_ns.mean, model.latency_ns.mean, allowed.mean_ns if allowed else None),
            ("p99", result.latency_ns.p99, model.latency_ns.p99, allowed.p99_ns if allowed else None),
            *_directions_beside_model(result, model, allowed),
        ):
            off_ns = host_ns - model_ns
            rows.append(
                (
                    name,
                    format_duration(host_ns),
                    format_duration(model_ns),
                    f"{'-' if off_ns < 0 else '+'}{format_duration(abs(off_ns), 3)}",
                    "" if limit_ns is None else format_duration(limit_ns, 3),
                    limit_ns is not None and abs(off_ns) > limit_ns,
                )
            )
    if not rows:
        return []
    table = _Table("host", "model", "off by", *(["allowed"] if allowed is not None else []), first_cells=13)
    for name, host, model_text, off_text, limit_text, is_beyond in rows:
        style = "bold red" if is_beyond else ""
        table.add_row(
            name, host, model_text, Text(off_text, style=style), *([limit_text] if allowed is not None else [])
        )
    return [Text(), table]


def _latencies(result: Result) -> _Table:
    both = result.read is not None and result.write is not None
    rows: list[tuple[str, Distribution | None]] = [
        ("latency", result.latency_ns),
        ("  reads", result.read.latency_ns if both and result.read else None),
        ("  writes", result.write.latency_ns if both and result.write else None),
        ("target", result.target_ns),
        ("processing", result.processing_ns),
        ("lateness", result.lateness_ns),
        # Without gaps it would be the line above it once more, of the sampled requests alone.
        ("  no gaps", result.lateness_no_gaps_ns if result.gaps is None or result.gaps.count else None),
        ("fetch wait ≤", result.fetch_wait_ns),
        ("added ≤", result.error_bound_ns),
    ]
    drop = ("p99.99", "p99.999", "p99.9", "p50")
    table = _Table("mean", "p50", "p99", "p99.9", "p99.99", "p99.999", "max", between=1, drop=drop)
    for name, figures in rows:
        if figures is None:
            continue
        values = (figures.mean, figures.p50, figures.p99, figures.p999, figures.p9999, figures.p99999, figures.max)
        table.add_row(name, *("" if value is None else format_duration(value, 3) for value in values))
    return table


def _host(result: Result) -> list[RenderableType]:
    """What the machine, and our own work, took away; nothing of that exists in virtual time."""
    lines: list[RenderableType] = []
    if result.path_ns:
        lines.append(
            _line("path", f"{format_duration(result.path_ns, 3)} of constant cost, taken off the model's latency")
        )
    if result.clock == "real":
        lines += _pieces("host gaps", result.gaps, result.host_gaps)
        lines += _pieces("long work", result.long_work, result.host_long_work, only_some=True)
        if result.poll_gap_max_ns is not None:
            longest = format_duration(result.poll_gap_max_ns)
            lines.append(_line("poll gap", f"{longest} at most between two looks at a doorbell"))
        if (waits := _waits(result)) is not None:
            lines.append(_line("driver", waits))
    if result.flash is not None:
        lines.append(_line("medium", _medium(result.flash)))
    if left := _unfinished(result):
        lines.append(_line("unfinished", left))
    return lines


def _waits(result: Result) -> str | None:
    """How the driver waited, and what of the processor it took; nothing is said of one that polls."""
    kind, waits = result.options.get("completion"), result.provenance.get("waits")
    if kind not in ("interrupt", "hybrid") or not isinstance(waits, Mapping):
        return None
    cost = format_duration(float(waits.get("cpu_ns_per_io") or 0), 3)
    sleeps, woken = int(waits.get("sleeps") or 0), int(waits.get("woken") or 0)
    name = "interrupts" if kind == "interrupt" else kind
    return f"{name}, {cost} of CPU a request; slept {sleeps:,} times, {woken:,} of them until an interrupt"


def _medium(flash: Mapping[str, float]) -> str:
    """What a NAND drive did beside what was asked of it."""
    reads = [
        f"{int(flash.get(f'{where}_reads') or 0):,} {text}"
        for where, text in (("flash", "reads of flash"), ("buffer", "of the buffer"), ("unwritten", "of nothing"))
        if flash.get(f"{where}_reads")
    ]
    written = int(flash.get("host_written_bytes") or 0)
    if not written:
        return ", ".join(reads) or "nothing was asked of it"
    wrote = f"{format_size(written)} written, write amplification {float(flash['write_amplification']):.3g}"
    erased = int(flash.get("erased_superblocks") or 0)
    return ", ".join([wrote, *([f"{counted(erased, 'superblock')} erased"] if erased else []), *reads])


def _pieces(label: str, engine: Gaps | None, driver: Gaps | None, *, only_some: bool = False) -> list[RenderableType]:
    """Pieces of time that the engine and the driver lost; `only_some` leaves out those of whom there were none."""
    lines: list[RenderableType] = []
    for who, found in (("engine", engine), ("driver", driver)):
        if found is None or (only_some and not found.count):
            continue
        what = f", longest {format_duration(found.longest_ns)}, {100 * found.share:.2f} % of the time"
        lines.append(_line("" if lines else label, f"{who} {found.count:,}{what if found.count else ''}"))
    return lines


def _unfinished(result: Result) -> Text | None:
    """What was under way at the end: a matter of course in a closed loop, unless it waited longer than the others."""
    found = result.unfinished or {}
    outstanding, backlog = int(found.get("outstanding") or 0), int(found.get("backlog") or 0)
    oldest_ns = float(found.get("oldest_ns") or 0)
    if not outstanding and not backlog:
        return None
    text = f"{outstanding:,} in flight, {backlog:,} waiting at the end; oldest for {format_duration(oldest_ns)}"
    # Of more requesters than slots some wait at any time.
    overdue = backlog if result.options.get("rate_iops") or result.options.get("trace_path") else 0
    return Text(text, style="yellow" if overdue or oldest_ns > result.latency_ns.max else "")


def _checks(result: Result, verify_asked: bool) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if result.verified or result.verify_errors:
        style = "bold red" if result.verify_errors else "green"
        text = f"{counted(result.verified, 'read')} checked, {result.verify_errors:,} wrong"
        lines.append(_line("verified", Text(text, style=style)))
        if crowded := result.verify_crowded:
            # It may be what somebody wanted to see checked.
            lines.append(_line("", f"{counted(crowded, 'read')} not checked: writes of their blocks were in flight"))
        if result.verify_first_error:
            lines.append(_whole("  first", result.verify_first_error))
    if why := unverified(result, verify_asked):
        lines.append(_line("NOT VERIFIED:", Text(why, style="bold red" if verify_asked else "yellow")))
    failed = sum(result.errors.values())
    if failed:
        text = counted(failed, "command")
        if measured := result.failed:
            # Those of the ramp are in no share.
            within = "" if measured["ios"] == failed else f"{measured['ios']:,} of them measured, "
            text += f", {within}{100 * float(measured['share']):.3g} %"
        no_part = "; they count in no rate and no latency" if result.schema_version > 1 else ""
        lines.append(_line("failed", Text(text + no_part, style="bold red")))
    for status, count in sorted(result.errors.items()):
        name = result.error_names.get(status) or status_name(int(status, 16))
        lines.append(_line("", Text(f"{count:,} × {name} ({status})", style="red")))
    if result.unanswered:
        # Whoever reads both numbers must not take one for a part of the other.
        beside = ", besides those that failed" if failed else ""
        lines.append(_line("unanswered", Text(counted(result.unanswered, "command") + beside, style="bold red")))
    if result.device_failed:
        text = "the controller failed or is gone; figures cover what came before"
        lines.append(_line("device", Text(text, style="bold red")))
    for fault in result.faults:
        lines.append(
            _line("fault", f"hit {fault['injected']:,} of {counted(fault['matched'], 'command')} by this rule:")
        )
        lines.append(_whole("", Text(str(fault["rule"]), style="yellow")))
    return lines


def _verdict(result: Result) -> RenderableType:
    verdict = Text(result.verdict_text, style=VERDICT_STYLES.get(result.verdict, ""))
    if result.verdict_cause:
        verdict.append(f": {result.verdict_cause}", style="not bold")
    return _line("verdict", verdict)


def unverified(result: Result, asked: bool = False) -> str:
    """Why no read was checked although that was wanted; empty where some were, or nobody wanted it."""
    if result.not_verified or result.verified or result.verify_errors or not asked:
        return _BYTES.sub(lambda found: format_size(int(found[1])), result.not_verified)
    if not result.read_ios:
        return "the run had no reads"
    return "no read met a block whose content is known"


def all_right(result: Result, *, verify_asked: bool = False) -> bool:
    """Whether every read that was checked was right, and every command was answered and none failed.

    Where verification was asked for by name, reads must have been checked, too.
    """
    if verify_asked and unverified(result, asked=True):
        return False
    answered = result.unanswered == 0 and not result.device_failed
    return result.verify_errors == 0 and answered and not any(result.errors.values())
