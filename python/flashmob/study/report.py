"""One page on a study of interfaces: what it found, in words with their figures, the table, and pictures."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.text import Text

from flashmob.columns import fitting
from flashmob.outputs import write_text
from flashmob.study.table import Row, spread
from flashmob.units import format_duration, format_rate, format_size

PAPER = Path(__file__).with_name("energy_paper.toml")
_PAPER_BLOCK_BYTES = 4096
# What is averaged over repeats, and how far they lay apart.
FIGURES = (
    "iops",
    "mean_us",
    "p50_us",
    "p99_us",
    "cpu_us_per_io",
    "emulator_us_per_io",
    "stolen_percent",
    "switches_per_io",
    "system_calls_per_io",
    "cycles_per_io",
    "watts",
    "idle_watts",
    "ios_per_joule",
    "ios_per_joule_above_idle",
    "gpu_watts",
)
_ENERGY_FIGURES = ("watts", "idle_watts", "ios_per_joule", "ios_per_joule_above_idle")
_POINT = ("interface", "rw", "block_bytes", "threads", "depth")


def paper() -> dict[str, Any]:
    """The printed numbers of the paper that the study follows, with their source."""
    return tomllib.loads(PAPER.read_text(encoding="utf-8"))


def summary(rows: Sequence[Row]) -> list[Row]:
    """A row for each point: the mean of its repeats for every figure, and `NAME.least` and `NAME.most`."""
    ordered = sorted(rows, key=lambda row: (*(str(row[name]).rjust(12) for name in _POINT[1:]), row["interface"]))
    found = []
    for point, group in groupby(ordered, key=lambda row: {name: row[name] for name in _POINT}):
        repeats = list(group)
        good = [row for row in repeats if row["supported"]]
        one: Row = {**point, "repeats": len(good), "supported": bool(good)}
        if not good:
            found.append(one | {"reason": repeats[0]["reason"]})
            continue
        energies = {(row["energy.source"], row.get("energy.meter")) for row in good}
        source, meter = next(iter(energies)) if len(energies) == 1 else ("mixed", None)
        one |= {"errors": sum(row["errors"] for row in good), "energy.source": source}
        if meter is not None:
            one["energy.meter"] = meter
        for name in FIGURES:
            # What two meters read is no mean of one thing.
            if source == "mixed" and name in _ENERGY_FIGURES:
                continue
            if (values := spread([row.get(name) for row in good])) is not None:
                one |= dict(zip((name, f"{name}.least", f"{name}.most"), values, strict=True))
        if verdicts := sorted({row["verdict"] for row in good if row.get("verdict")}):
            one["verdict"] = "; ".join(verdicts)
        if why := list(dict.fromkeys(row["doubt"] for row in good if row.get("doubt"))):
            one["doubt"] = "; ".join(why)
        found.append(one)
    return found


def findings(points: Sequence[Row]) -> list[str]:
    """What is best at each load, in sentences with the figures that say so."""
    said = []
    for load, group in groupby(points, key=_load):
        good = [row for row in group if row["supported"] and row.get("iops")]
        if len(good) < 2:
            continue
        fastest = max(good, key=lambda row: row["iops"])
        frugal = min(good, key=lambda row: row["cpu_us_per_io"])
        words = (
            f"{load}: most requests by {fastest['interface']} ({format_rate(fastest['iops'])}, "
            f"{fastest['cpu_us_per_io']:.2f} µs of CPU each), least CPU by {frugal['interface']} "
            f"({frugal['cpu_us_per_io']:.2f} µs each, {format_rate(frugal['iops'])})"
        )
        for meter in sorted({row.get("energy.meter", "") for row in good if row.get("ios_per_joule")}):
            metered = [row for row in good if row.get("ios_per_joule") and row.get("energy.meter", "") == meter]
            best = max(metered, key=lambda row: row["ios_per_joule"])
            kind = best["energy.source"]
            named = f"{kind}, {meter}" if meter else kind
            words += f"; most per joule ({named}) by {best['interface']} ({best['ios_per_joule']:,.0f} requests)"
        if any(row["repeats"] < 2 for row in good):
            words += "; of one run each, which tells no winner from chance"
        if any(_overlap(fastest, row) for row in good if row is not fastest):
            words += "; the repeats of the fastest and of another overlap"
        said.append(f"{words}.")
    return said


def _overlap(one: Row, other: Row) -> bool:
    return bool(one["repeats"] > 1 and one["iops.least"] <= other["iops.most"])


def _load(row: Row) -> str:
    threads = f"{row['threads']} thread{'' if row['threads'] == 1 else 's'}"
    return f"{row['rw']} of {format_size(row['block_bytes'])}, {threads}, depth {row['depth']}"


# Columns that a terminal has room for come first.
_HEADINGS = (
    *("interface", "rw", "size", "threads", "depth", "IOPS", "mean", "p99", "CPU µs/IO"),
    *("switches/IO", "calls/IO", "stolen %", "W", "idle W", "IO/J", "IO/J above idle", "energy.source"),
)
SHORT = _HEADINGS[:9]
_SETTINGS = ("rw", "size", "threads", "depth")


def table_rows(points: Sequence[Row]) -> list[list[str]]:
    """Cells as they are shown, of what could be measured."""
    return [
        [
            *(row["interface"], row["rw"], format_size(row["block_bytes"]), str(row["threads"]), str(row["depth"])),
            f"{format_rate(row.get('iops') or 0, '').strip()}{_range(row, 'iops')}{_failed(row)}",
            *(format_duration(row[name] * 1e3, 3) if name in row else "-" for name in ("mean_us", "p99_us")),
            *(_number(row.get(name)) for name in ("cpu_us_per_io", "switches_per_io", "system_calls_per_io")),
            _number(row.get("stolen_percent")),
            *(_number(row.get(name)) for name in ("watts", "idle_watts", "ios_per_joule", "ios_per_joule_above_idle")),
            str(row["energy.source"]),
        ]
        for row in points
        if row["supported"]
    ]


def short_table(points: Sequence[Row], width: int) -> list[str]:
    """The first columns as lines of at most `width`: no name is broken, and what is the same in all rows goes first."""
    cells = [row[: len(SHORT)] for row in table_rows(points)]
    if not cells:
        return []
    rows = [list(SHORT), *cells]
    said = []
    while sum(max(map(len, column)) + 1 for column in zip(*rows, strict=True)) - 1 > width:
        place = next((place for place, name in enumerate(rows[0]) if name in _SETTINGS and _is_one(rows, place)), None)
        if place is None:
            break
        said.append(f"{rows[0][place]} {rows[1][place]}")
        rows = [[*row[:place], *row[place + 1 :]] for row in rows]
    lines = fitting([[Text(cell) for cell in row] for row in rows], width, gap=1)
    return [*([f"all rows: {', '.join(said)}"] if said else []), *(line.plain.rstrip() for line in lines)]


def _is_one(rows: Sequence[Sequence[str]], place: int) -> bool:
    return len({row[place] for row in rows[1:]}) == 1


def not_measured(points: Sequence[Row]) -> list[str]:
    """Sentences on what could not be measured: who, and why."""
    names: dict[str, dict[str, None]] = {}
    for row in points:
        if not row["supported"]:
            names.setdefault(row["reason"], {})[row["interface"]] = None
    return [f"{', '.join(who)}: {reason}" for reason, who in names.items()]


def doubts(points: Sequence[Row]) -> list[str]:
    """Sentences on what is not to be relied on: an emulator that was late, requests that failed."""
    said = [
        f"{row['interface']}, {_load(row)}: the emulator's verdict is {row['verdict']}"
        for row in points
        if row.get("verdict") and not all(one.startswith("VALID") for one in row["verdict"].split("; "))
    ]
    said += [f"{row['interface']}, {_load(row)}: {row['doubt']}" for row in points if row.get("doubt")]
    return said + [
        f"{row['interface']}, {_load(row)}: {row['errors']} requests failed" for row in points if row.get("errors")
    ]


def _failed(row: Row) -> str:
    return f" ({row['errors']} failed)" if row["errors"] else ""


def _range(row: Row, name: str) -> str:
    if row["repeats"] < 2:
        return ""
    share = (row[f"{name}.most"] - row[f"{name}.least"]) / 2 / row[name] if row[name] else 0.0
    return f" ± {100 * share:.0f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def beside_paper(points: Sequence[Row]) -> list[list[str]]:
    """The paper's medians with ours of the same load, where it was measured."""
    ours = {
        (row["interface"], row["rw"]): row["p50_us"]
        for row in points
        if row["supported"]
        and (row["block_bytes"], row["threads"], row["depth"]) == (_PAPER_BLOCK_BYTES, 1, 1)
        and "p50_us" in row
    }
    rows = []
    for name, read, _, write, *_ in paper()["rows"]:
        name_here = "driver-poll" if name == "spdk" and ("driver-poll", "randread") in ours else name
        mine = [ours.get((name_here, rw)) for rw in ("randread", "randwrite")]
        cells = ["-" if value is None else f"{value:.2f}" for value in mine]
        rows.append(
            [name if name == name_here else f"{name} (here: {name_here})", f"{read:.2f}", f"{write:.2f}", *cells]
        )
    return rows


_PAPER_HEADINGS = ("interface", "paper: read p50 µs", "paper: write p50 µs", "here: read p50 µs", "here: write p50 µs")


def sections(points: Sequence[Row], facts: Mapping[str, str], figures: Sequence[str]) -> list[tuple[str, Any]]:
    """The page as (kind, content), for either format."""
    printed = paper()
    parts: list[tuple[str, Any]] = [("title", f"Interfaces: {facts['target']}")]
    parts.append(("list", [f"{name}: {value}" for name, value in facts.items() if value]))
    parts.append(("heading", "Findings"))
    parts.append(("list", findings(points) or ["Fewer than two interfaces were measured at any load."]))
    if doubtful := doubts(points):
        parts += [("heading", "Not to be relied on"), ("list", doubtful)]
    parts += [("figure", name) for name in figures]
    parts += [("heading", "All points"), ("table", (_HEADINGS, table_rows(points)))]
    if missing := not_measured(points):
        parts += [("heading", "Not measured"), ("list", missing)]
    parts += [("heading", "The paper's drive and machine, and this one")]
    note = (
        f"The paper's are of its own drive and machine ({printed['machine']}; {printed['load']}): {printed['source']}. "
    )
    parts.append(("text", note + "They are no measure of what was measured here."))
    parts.append(("table", (_PAPER_HEADINGS, beside_paper(points))))
    return parts


def markdown(parts: Sequence[tuple[str, Any]]) -> str:
    """The page as Markdown."""
    lines: list[str] = []
    for kind, content in parts:
        if kind in ("title", "heading"):
            lines.append(f"{'#' if kind == 'title' else '##'} {content}")
        elif kind == "list":
            lines.append("\n".join(f"- {_cell(item)}" for item in content))
        elif kind == "figure":
            lines.append(f"![{content}]({content})")
        elif kind == "table":
            headings, rows = content
            table = [list(headings), ["---"] * len(headings)]
            table += rows
            lines.append("\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in table))
        else:
            lines.append(str(content))
    return "\n\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#1f2430}"
    "table{border-collapse:collapse;font-size:13px}"
    "td,th{border-bottom:1px solid #e5e7eb;padding:3px 8px;text-align:left}"
    "img{max-width:100%}"
)


def html(parts: Sequence[tuple[str, Any]]) -> str:
    """The page as HTML; everything that came from outside is escaped."""
    title = next(str(content) for kind, content in parts if kind == "title")
    body: list[str] = []
    for kind, content in parts:
        if kind in ("title", "heading"):
            tag = "h1" if kind == "title" else "h2"
            body.append(f"<{tag}>{escape(content)}</{tag}>")
        elif kind == "list":
            body.append("<ul>" + "".join(f"<li>{escape(item)}</li>" for item in content) + "</ul>")
        elif kind == "figure":
            body.append(f'<p><img src="{escape(content)}" alt="{escape(content)}"></p>')
        elif kind == "table":
            headings, rows = content
            head = "".join(f"<th>{escape(name)}</th>" for name in headings)
            body.append(f"<table><tr>{head}</tr>{''.join(_html_row(row) for row in rows)}</table>")
        else:
            body.append(f"<p>{escape(content)}</p>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
        f"<body>{''.join(body)}</body></html>\n"
    )


def _html_row(row: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"


def write_report(folder: Path, points: Sequence[Row], facts: Mapping[str, str], figures: Sequence[str]) -> None:
    """report.md and report.html, with the figures that lie beside them."""
    parts = sections(points, facts, figures)
    write_text(folder / "report.md", markdown(parts))
    write_text(folder / "report.html", html(parts))
