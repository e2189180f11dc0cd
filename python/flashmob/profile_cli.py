"""flashmob profiles: the devices that can be emulated, what each key of one is, and a file of it to edit."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flashmob.cli_options import ProfileName, Set
from flashmob.device import core_device, core_module
from flashmob.errors import ConfigError
from flashmob.models import Profile, Timing
from flashmob.profile_toml import to_toml
from flashmob.profiles import ProfileFile, load_profile, parse_overrides, profile_files, user_profile_folder
from flashmob.units import format_duration, format_rate, format_size
from flashmob.usage import App

app = App(help="The devices that can be emulated.", invoke_without_command=True)

_SMALLEST, _LARGE = 512, 1 << 20

Row = tuple[str, str, str, str, str, str]
# Reads and writes a second of 512 bytes, GB/s of both with 1 MiB, microseconds of both on an idle device.
_HEADINGS: Row = ("profile", "reads", "writes", "GB/s r/w", "us r/w", "what it is")
_LEAST_TEXT = 12  # Less of the last column says nothing.

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.", show_default=False)]
Toml = Annotated[bool, typer.Option("--toml", help="Print a file to save and edit.", show_default=False)]

Settings = Annotated[
    bool,
    typer.Option("--settings", help="Print what the device is set to, for fio's engine and C++.", show_default=False),
]


@app.callback()
def default(context: typer.Context, as_json: Json = False) -> None:
    """Lists the profiles: the packaged ones and your own."""
    if context.invoked_subcommand is None:
        list_profiles(as_json)
    elif as_json:
        raise ConfigError(f"--json is for the command, not for profiles; write it after {context.invoked_subcommand}")


@app.command("list")
def list_profiles(as_json: Json = False) -> None:
    """Lists the profiles: the packaged ones and your own."""
    listed = [(file, *_loaded(file)) for file in profile_files().values()]
    if as_json:
        _print_json([_summary(file, profile, error) for file, profile, error in listed])
        return
    console = Console()
    own = [row for row in listed if not row[0].packaged]
    rows = [_row(file.name, profile) for file, profile, _ in listed if file.packaged]
    if own:
        rows += [("", "", "", "", "", ""), ("yours:", "", "", "", "", "")]
        rows += [_row(file.name, profile) for file, profile, _ in own]
    console.print(_table(rows, console.width))
    for file, _, error in own:
        if error:
            console.print(f"{file.name} cannot be used: {error}", style="red", soft_wrap=True, highlight=False)
        elif file.shadows:
            console.print(f"Your {file.name} stands in place of the packaged one.", soft_wrap=True, highlight=False)
    _print_hint(console)


def _table(rows: list[Row], width: int) -> Table:
    """As many columns as fit: names must not be cut. The last one may be."""
    fixed = [max(len(row[column]) for row in [_HEADINGS, *rows]) for column in range(len(_HEADINGS))]
    shown = len(_HEADINGS)
    while shown > 1 and sum(fixed[: shown - 1]) + 2 * (shown - 1) + _LEAST_TEXT > width:
        shown -= 1
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column, heading in enumerate(_HEADINGS[:shown]):
        is_text = column in (0, len(_HEADINGS) - 1)
        table.add_column(
            heading,
            justify="left" if is_text else "right",
            style="cyan" if column == 0 else "",
            no_wrap=True,
            min_width=fixed[column] if column < len(_HEADINGS) - 1 else _LEAST_TEXT,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row[:shown]))
    return table


def _print_hint(console: Console) -> None:
    folder = user_profile_folder()
    if folder is None:
        return
    console.print("\nreads, writes: a second, of 512 bytes; GB/s of 1 MiB; us: latency when idle", highlight=False)
    console.print("of drives from their NAND: while new, before caches fill and garbage is moved", highlight=False)
    console.print("\nOne of your own: flashmob profiles show NAME --toml, edited and saved in", highlight=False)
    console.print(str(folder), soft_wrap=True, highlight=False, markup=False)


@app.command("show")
def show(
    name: ProfileName, set_: Set = None, toml: Toml = False, as_json: Json = False, settings: Settings = False
) -> None:
    """Shows every key of a profile, its value, and where the value comes from."""
    forms = [flag for flag, given in (("--toml", toml), ("--json", as_json), ("--settings", settings)) if given]
    if len(forms) > 1:
        raise ConfigError(f"{' and '.join(forms)} exclude each other; use one of them")
    profile = load_profile(name, parse_overrides(set_ or []))
    if settings:
        print(core_module().config_text(core_device(profile)), end="")
    elif toml:
        print(to_toml(profile), end="")
    elif as_json:
        _print_json(_details(profile))
    else:
        _show(profile, Console())


def _show(profile: Profile, console: Console) -> None:
    def line(text: Text) -> None:
        console.print(text, soft_wrap=True, highlight=False)

    line(Text(profile.name, style="bold cyan") + Text(f"  {profile.description}", style=""))
    line(Text(str(profile.path), style="dim"))
    given = profile.given_keys()
    flat = _flatten(profile.settings())
    for key, value in flat:
        if key in given:
            line(Text(key, style="bold") + Text(f" = {_readable(key, value)}"))
            if source := profile.sources.get(key):
                console.print(Padding(Text(source, style="dim"), (0, 0, 0, 4)))
    line(Text("\ndefaults, which the profile leaves as they are:", style="bold"))
    for key, value in flat:
        if key not in given:
            line(Text(f"{key} = {_readable(key, value)}", style="dim"))


def _loaded(file: ProfileFile) -> tuple[Profile | None, str]:
    # What is wrong with one file must not hide the others.
    try:
        return load_profile(str(file.path) if not file.packaged else file.name), ""
    except ConfigError as error:
        return None, str(error)


def _row(name: str, profile: Profile | None) -> Row:
    if profile is None:
        return name, "", "", "", "", "cannot be used: see below"
    timing = profile.timing
    if timing.model == "none":
        return name, "-", "-", "-", "-", profile.description
    return (
        name,
        _compact(timing.rate_at("read", _SMALLEST)),
        _compact(timing.rate_at("write", _SMALLEST)),
        f"{_bandwidth(timing, 'read') / 1e9:.3g}/{_bandwidth(timing, 'write') / 1e9:.3g}",
        f"{_microseconds(timing, 'read')}/{_microseconds(timing, 'write')}",
        profile.description,
    )


def _bandwidth(timing: Timing, direction: Any) -> float:
    return timing.rate_at(direction, _LARGE) * _LARGE


def _microseconds(timing: Timing, direction: Any) -> str:
    latency_ns = timing.idle_latency_ns(direction)
    # What was calculated from parts is not known to the nanosecond, and a list needs no tenths of tens.
    whole = timing.model == "nand" or latency_ns >= 10_000
    return f"{latency_ns / 1e3:.0f}" if whole else f"{latency_ns / 1e3:g}"


def _compact(rate: float) -> str:
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if rate >= scale:
            return f"{rate / scale:.3g}{prefix}"
    return f"{rate:.3g}"


def _summary(file: ProfileFile, profile: Profile | None, error: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": file.name, "path": str(file.path), "packaged": file.packaged}
    entry["shadows_packaged"] = file.shadows
    if profile is None:
        return entry | {"error": error}
    timing = profile.timing
    modelled = timing.model != "none"
    entry["description"] = profile.description
    entry["size_bytes"] = sum(namespace.size_bytes for namespace in profile.subsystem.namespaces)
    directions: tuple[Literal["read", "write"], ...] = ("read", "write")
    for direction in directions:
        entry[direction] = None
        if modelled:
            entry[direction] = {
                "iops": timing.rate_at(direction, _SMALLEST),
                "iops_4k": timing.rate_at(direction, 4096),
                "bytes_per_s": _bandwidth(timing, direction),
                "latency_ns": timing.idle_latency_ns(direction),
            }
    return entry


def _details(profile: Profile) -> dict[str, Any]:
    flat = [key for key, _ in _flatten(profile.settings())]
    given = profile.given_keys()
    return {
        "name": profile.name,
        "path": str(profile.path),
        "description": profile.description,
        "settings": profile.settings(),
        "sources": profile.sources,
        "defaults": [key for key in flat if key not in given],
    }


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2))


def _flatten(data: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(data, dict):
        pairs = data.items()
    elif isinstance(data, list) and data and isinstance(data[0], dict):
        pairs = {str(index): item for index, item in enumerate(data)}.items()
    else:
        return [(prefix, data)]
    return [line for key, value in pairs for line in _flatten(value, f"{prefix}.{key}" if prefix else str(key))]


def _readable(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(_readable(key, one) for one in value)}]"
    if key.endswith("_bytes_per_s"):
        return f"{value} ({value / 1e9:.4g} GB/s)" if value else "0 (no limit)"
    if key.endswith("_bytes"):
        return f"{value} ({format_size(value)})"
    if key.endswith("_ns"):
        return f"{value} ({format_duration(value)})"
    if key.endswith("_iops"):
        return f"{value:g} ({format_rate(value)})"
    return str(value)
