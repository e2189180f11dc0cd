"""Options and checks that several commands of the command line share."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from flashmob.errors import ConfigError
from flashmob.units import parse_duration_with_unit_ns


def option(panel: str | None, metavar: str | None, text: str, *names: str) -> Any:
    """An option of a command: the panel of --help that it stands in, what its value is called, what it does."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, show_default=False)


SET_HELP = "Change a key of the profile: timing.read_iops=5e6. Repeatable."
LOAD, AMOUNT, DEVICE = "Load", "How much, how long", "Device"
CHECKS, OUTPUT = "Checks", "Output"
DOORS, WATCH, NETWORK = "Doors", "Watching", "Over the network"


def _profile_names(incomplete: str) -> list[str]:
    """Profiles for the shell's completion, which must never show an error."""
    try:
        from flashmob.profiles import profile_names

        return [name for name in profile_names() if name.startswith(incomplete)]
    except (OSError, ConfigError):
        return []


Profile = Annotated[
    str,
    typer.Argument(metavar="PROFILE", help="A packaged profile's name or a .toml file.", autocompletion=_profile_names),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE|DOOR",
        help="A packaged profile's name, a .toml file, or what another process serves: vfio-user:PATH or "
        "nvme-tcp:ADDR:PORT/NQN.",
        autocompletion=_profile_names,
    ),
]
SomeProfile = Annotated[
    str | None,
    typer.Argument(metavar="[PROFILE]", help="A profile's name or .toml file.", autocompletion=_profile_names),
]
ProfileName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A packaged profile's name or a .toml file.", autocompletion=_profile_names),
]
Set = Annotated[list[str] | None, option(None, "KEY=VALUE", SET_HELP, "--set")]
Media = Annotated[
    str | None, option(DEVICE, "KIND", "memory, generated, file:PATH or cow:PATH (that file, left as it is).")
]
Size = Annotated[str | None, option(DEVICE, "BYTES", "Size of the namespace, such as 8G.")]
Faults = Annotated[
    list[str] | None,
    option(DEVICE, "RULE", "A fault to show, such as 'error on=read p=0.01'. Repeatable.", "--fault"),
]


def with_unit(name: str, text: str | None) -> int | None:
    """Nanoseconds of a time whose unit must be written; `name` is the option's, for the error."""
    if text is None:
        return None
    try:
        return parse_duration_with_unit_ns(text)
    except ValueError as error:
        raise ConfigError(f"{name} {text!r} is not possible: {error}") from None


def check_writable(path: str, name: str = "") -> None:
    """Fails before the run rather than after it, and leaves no file behind that was not there; `name`: the option's."""
    shown = f"{name} {shlex.quote(path)}".strip()
    file = Path(path).expanduser()
    if file.is_dir():
        raise ConfigError(f"{shown} is not possible: it is a folder; name a file in it")
    if file.exists() and not file.is_file():
        return  # A device or a pipe, which opening may change or wait for.
    new = not file.exists()
    try:
        with file.open("ab"):
            pass
        if new:
            file.unlink()
    except OSError as error:
        raise ConfigError(
            f"{shown} cannot be written ({error.strerror}); use a folder that exists and that you may write to"
        ) from None


def check_folder(name: str, path: str) -> None:
    """Makes a folder for results, and fails before the run rather than after it; `name` is the option's."""
    folder = Path(path).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        good = os.access(folder, os.W_OK)
        why = "it may not be written to"
    except OSError as error:
        good, why = False, error.strerror or "it cannot be made"
    if not good:
        raise ConfigError(f"{name} {path} is not possible: {why}; name a folder that you may write to")
