"""What other processes of this user serve, for people: the list, the live view, and one of them in full."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from flashmob.columns import fitting
from flashmob.errors import ConfigError
from flashmob.live import Picture, View, clock_time, door_lines, figure_lines, lease_text, plain_line, verdict_style
from flashmob.models import Profile
from flashmob.registry import is_stopped, servers, silent_s
from flashmob.result import verdict_words
from flashmob.units import format_rate, format_size

# A server says how it does about once a second; a busy machine may keep it from that for some more.
SILENT_S = 5.0


def summary(state: Mapping[str, Any]) -> dict[str, Any]:
    """A server in the few words of `flashmob ls --json`."""
    stats = state["stats"]
    return {
        "name": state["name"],
        "pid": state["pid"],
        "profile": state["profile"],
        "version": state["version"],
        "started": datetime.fromtimestamp(state["started_s"], UTC).isoformat(timespec="seconds"),
        "uptime_s": stats["uptime_s"],
        "silent_s": silent_s(state),
        "answers": not not_answering(state),
        "nqn": state["nqn"],
        "serial": state["serial"],
        "addresses": state["addresses"],
        "metrics": state["metrics"],
        "json_log": state["json_log"],
        "faults_file": state["faults_file"],
        "hosts": [host["host"] for host in stats["hosts"]],
        # Not its last rate, which would look like what it does now.
        "iops": None if not_answering(state) else stats["iops"],
        "verdict_so_far": stats["verdict_so_far"],
        "verdict_so_far_cause": stats["verdict_so_far_cause"],
        "tolerance_share_so_far": stats.get("tolerance_share_so_far"),
    }


def record(state: Mapping[str, Any]) -> dict[str, Any]:
    """A server as `flashmob top --json` says it: its state file, and whether what that says is of now."""
    return {**state, "answers": not not_answering(state)}


def not_answering(state: Mapping[str, Any]) -> str:
    """Why a server serves nobody at present, as words; empty if it does, as far as one can tell."""
    if is_stopped(state):
        return f"its process ({state['pid']}) is stopped; kill -CONT {state['pid']} lets it go on"
    return f"no news for {silent_s(state):.0f} s" if silent_s(state) >= SILENT_S else ""


def view_of(state: Mapping[str, Any]) -> View:
    """A server's state as what is shown of it."""
    stats = json.loads(json.dumps(state["stats"]), object_hook=lambda values: SimpleNamespace(**values))
    profile, addresses = str(state["profile"]), [str(address) for address in state["addresses"]]
    return View(state["name"], profile, addresses, stats, not_answering(state), state["pid"])


# What comes of figures that are missing, or are not what they should be.
_UNFIT = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)


def unfit(state: Mapping[str, Any]) -> str:
    """Why a server cannot be shown, as a sentence: its state is not one that this version writes. Empty if it can."""
    try:
        summary(state)
        list_lines([state], 80)
        view = view_of(state)
        plain_line(view)
        door_lines(view)
        figure_lines(view, 80)
    except _UNFIT:
        return (
            f"{state['name']}: what process {state['pid']} says of itself is not what this version of flashmob knows; "
            "use the version that serves it"
        )
    return ""


def apart(states: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The servers that can be shown, and a sentence for each other one."""
    reasons = [(state, unfit(state)) for state in states]
    return [state for state, reason in reasons if not reason], [reason for _, reason in reasons if reason]


_HEADINGS = ("name", "process", "hosts", "verdict", "profile", "up", "rate")


def list_lines(states: Sequence[Mapping[str, Any]], width: int) -> list[Text]:
    """A heading and one line an SSD, with as many columns as fit; below it what may be long, which is never cut."""
    rows = [tuple(Text(heading, style="dim") for heading in _HEADINGS)]
    for state in states:
        stats = state["stats"]
        silent = not_answering(state)
        verdict = "not answering" if silent else _words(stats)
        rows.append(
            (
                Text(state["name"], style="bold cyan"),
                Text(str(state["pid"])),
                Text(str(len(stats["hosts"]))),
                Text(verdict, style="yellow" if silent else verdict_style(verdict)),
                Text(state["profile"]),
                Text(clock_time(stats["uptime_s"])),
                Text("" if silent else format_rate(stats["iops"]), style="cyan"),
            )
        )
    heading, *shown = fitting(rows, width)
    lines = [heading]
    for row, state in zip(shown, states, strict=True):
        lines.append(row)
        if silent := not_answering(state):
            lines.append(Text(f"  {silent}", style="yellow"))
        elif cause := state["stats"]["verdict_so_far_cause"]:
            lines += [Text(f"  {line}") for line in wrap(cause, max(40, width - 2))]
        lines += [Text(f"  {address}") for address in state["addresses"]]
        lines += [Text("  ") + lease_text(SimpleNamespace(**lease)) for lease in state["stats"].get("leases", ())]
    return lines


def _words(stats: Mapping[str, Any]) -> str:
    """The verdict since the start; an older server's state does not tell the tolerance."""
    return verdict_words(stats["verdict_so_far"], stats.get("tolerance_share_so_far"))


class Top:
    """The live view: a picture on a terminal, a line or a record an SSD and look elsewhere."""

    def __init__(self, console: Console, name: str | None, *, as_json: bool, live: bool) -> None:
        self._console = console
        self._name = name
        self._as_json = as_json
        self._picture = Picture(console) if live else None
        self._known: dict[str, int] = {}
        self._unfit: set[str] = set()

    def look(self) -> bool:
        """Shows how things are; whether there is something left to look at."""
        states, unfit_ones = apart([state for state in servers() if self._name in (None, state["name"])])
        for reason in unfit_ones:
            if reason not in self._unfit:
                print(reason, file=sys.stderr)
        self._unfit.update(unfit_ones)
        if self._as_json:
            for state in states:
                print(json.dumps(record(state), separators=(",", ":")))
        elif self._picture is None:
            lines = [plain_line(view_of(state)) for state in states]
            print("".join(f"{line}\n" for line in lines), end="")
        else:
            self._draw(self._picture, states)
        print(end="", flush=True)
        if not states and not unfit_ones and not self._as_json:
            gone = ", ".join(self._known) or self._name
            ended = f"{gone} ended" if gone else "no SSD is served by you; `flashmob serve` starts one"
            self._console.print(Text(ended), soft_wrap=True)
        self._known = {state["name"]: state["pid"] for state in states}
        return bool(states)

    def _draw(self, picture: Picture, states: Sequence[Mapping[str, Any]]) -> None:
        now = {state["name"]: state["pid"] for state in states}
        ended = [Text(f"{name} ended", style="yellow") for name in self._known if name not in now]
        views = [view_of(state) for state in states]
        # How to reach an SSD is said once, above the picture, where it can be copied in peace.
        fresh = [view for view in views if self._known.get(view.name) != view.pid]
        said = [*ended, *(line for view in fresh for line in door_lines(view))]
        if said:
            picture.say(said)
        picture.draw([line for view in views for line in (Text(), *figure_lines(view, self._console.width))])


def of_settings(state: Mapping[str, Any]) -> Profile:
    """The device of a server again, with a store that takes no memory and leaves files alone.

    Raises:
        ConfigError: if the server is of another version, whose settings this one does not know, or its file is gone.
    """
    if reason := unfit(state):
        raise ConfigError(reason)
    try:
        settings = json.loads(json.dumps(state["settings"]))
        for namespace in settings["subsystem"]["namespaces"]:
            kind, _, path = namespace["media"].partition(":")
            if kind == "memory":
                namespace["media"] = "generated"
            elif kind == "file":
                namespace["media"] = "generated"
                namespace["size_bytes"] = namespace["size_bytes"] or Path(path).expanduser().stat().st_size
        return Profile.model_validate({**settings, "name": state["profile"]})
    except OSError as error:
        raise ConfigError(
            f"{state['name']} serves {error.filename}, which cannot be looked at: {error.strerror}"
        ) from None
    except (AttributeError, LookupError, TypeError, ValidationError):
        raise ConfigError(f"{state['name']} is served by flashmob {state['version']}; use that version") from None


def described(state: Mapping[str, Any]) -> list[str]:
    """A server in words: who, how to reach it, what it is."""
    said = summary(state)
    sizes = [
        f"{format_size(namespace['size_bytes']) if namespace['size_bytes'] else 'all'} of {namespace['media']}"
        for namespace in state["settings"]["subsystem"]["namespaces"]
    ]
    facts = [
        ("name", said["name"]),
        ("process", f"{said['pid']}, up {clock_time(said['uptime_s'])}"),
        ("profile", said["profile"]),
        ("store", "; ".join(sizes)),
        *(("door", address) for address in said["addresses"]),
        ("nqn", said["nqn"]),
        *((key, said[key]) for key in ("metrics", "json_log", "faults_file") if said[key]),
        *(("host", host) for host in said["hosts"]),
        *([("state", f"not answering: {silent}")] if (silent := not_answering(state)) else []),
        ("verdict", _words(said) + (f": {cause}" if (cause := said["verdict_so_far_cause"]) else "")),
    ]
    return [*(f"{key:<12}{value}" for key, value in facts), ""]
