"""Options and checks that several commands of the command line share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any, ClassVar, get_type_hints

import typer

from flashmob.errors import ConfigError
from flashmob.keywords import DEVICE as DEVICE
from flashmob.keywords import OF_PROFILE as OF_PROFILE
from flashmob.keywords import BenchKeywords, Shown
from flashmob.units import parse_count, parse_duration_with_unit_ns
from flashmob.usage import Command, Function


def option(panel: str | None, metavar: str | None, text: str, *names: str) -> Any:
    """An option of a command: the panel of --help that it stands in, what its value is called, what it does."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel)


def counting(panel: str | None, text: str, *, least: int | None = None) -> Any:
    """An option that counts something, in numbers as everywhere: 5k and 1e3 are some, too."""

    def number(typed: str | int) -> int:
        try:
            count = parse_count(typed)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if least is not None and count < least:
            raise typer.BadParameter(f"use at least {least}")
        return count

    return typer.Option(metavar="N", help=text, rich_help_panel=panel, parser=number)


class DefaultsCommand(Command):
    """A command whose --help says what holds for options that are None where they are left out."""

    left_out: ClassVar[Mapping[str, str]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            if default := self.left_out.get(parameter.name or ""):
                described: Any = parameter
                described.help = f"{described.help} [dim]\\[default: {default}][/]"


def shown_keywords() -> Iterator[tuple[str, Shown]]:
    """Keywords of bench() that the command line has, too."""
    for key, hint in get_type_hints(BenchKeywords, include_extras=True).items():
        for shown in getattr(hint, "__metadata__", ()):
            yield key, shown


KEYWORDS = dict(shown_keywords())
# What holds for those that are left out.
LEFT_OUT = {key: shown.default for key, shown in KEYWORDS.items() if shown.default}


def with_keywords(names: Collection[str]) -> Callable[[Function], Function]:
    """Gives a command that takes `**typed` these keywords of bench() as options, behind its arguments."""

    def declare(function: Function) -> Function:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[:-1]
        arguments = [one for one in own if one.default is one.empty]
        options = []
        for key, shown in KEYWORDS.items():
            if key in names:
                declared = option(shown.panel, shown.metavar, shown.text, *([shown.flag] if shown.flag else []))
                annotation: Any = Annotated[bool, declared] if shown.flag else Annotated[str | None, declared]
                default = False if shown.flag else None
                options.append(inspect.Parameter(key, own[0].kind, default=default, annotation=annotation))
        parameters = [*arguments, *options, *own[len(arguments) :]]
        function.__dict__["__signature__"] = inspect.Signature(parameters)
        return function

    return declare


def given_keywords(typed: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed for keywords of bench(): a flag that was not given is none, and one that says no is False."""
    return {
        key: value if not isinstance(value, bool) else (not KEYWORDS[key].flag.startswith("--no-") if value else None)
        for key, value in typed.items()
    }


SET_HELP = "Change a key of the profile: timing.read_iops=5e6. Repeatable."
OUTPUT, DOORS, WATCH = "Output", "Doors", "Watching"


def _profile_names(incomplete: str) -> list[str]:
    """Profiles for the shell's completion, which must never show an error."""
    try:
        from flashmob.profiles import profile_names

        return [name for name in profile_names() if name.startswith(incomplete)]
    except (OSError, ConfigError):
        return []


Profile = Annotated[
    str,
    typer.Argument(metavar="PROFILE", help="A profile's name or a .toml file.", autocompletion=_profile_names),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE|NAME|DOOR",
        help="A profile's name, a .toml file, or what another process serves: a name that flashmob ls lists, "
        "vfio-user:PATH or nvme-tcp:ADDR:PORT/NQN.",
        autocompletion=_profile_names,
    ),
]
SomeProfile = Annotated[
    str | None,
    typer.Argument(metavar="[PROFILE]", help="A profile's name or .toml file.", autocompletion=_profile_names),
]
ProfileName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A profile's name or a .toml file.", autocompletion=_profile_names),
]
Set = Annotated[list[str] | None, option(None, "KEY=VALUE", SET_HELP, "--set")]
Media = Annotated[
    str | None,
    option(DEVICE, "KIND", "memory, generated, file:PATH, direct:PATH or cow:PATH (that file, left as it is)."),
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
