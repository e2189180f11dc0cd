"""Mistakes that the command line's parser finds: they are said in one sentence, as all other mistakes are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from flashmob.errors import EXIT_USAGE, ConfigError
from flashmob.explain import did_you_mean

Function = TypeVar("Function", bound=Callable[..., Any])

# What the parser raises for options, arguments and commands that it does not understand.
_UsageError: Any = typer.BadParameter.__base__


class Command(TyperCommand):
    """A command that refuses empty values, most likely variables that a script has not set, and values left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments; see click.Command.parse_args."""
        self._check_options(list(args))
        rest = super().parse_args(ctx, args)
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            if value == "" or (isinstance(value, list | tuple) and "" in value):
                leave = "" if parameter.required else ", or leave it out"
                raise ConfigError(f"{_name(parameter)} '' is not possible: give it a value{leave}")
        return rest

    def _check_options(self, args: list[str]) -> None:
        """Refuses an option whose value is the next option: what is left over then is not what is wrong."""
        options = {name: one for one in self.params if one.param_type_name == "option" for name in one.opts}
        for name, value in pairwise(args):
            if name == "--":
                return
            one: Any = options.get(name)
            if one is not None and not one.is_flag and not one.count and value.startswith("--") and value in options:
                raise ConfigError(f"{name} has no value; write {name} {one.metavar or 'VALUE'}")


class App(typer.Typer):
    """Commands, each of them a Command unless it is registered as something more."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        """Registers a command; see typer.Typer.command."""
        return super().command(name, **{"cls": Command} | options)


class Commands(TyperGroup):
    """All commands of the program; what the parser refuses becomes a ConfigError."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the command that the arguments name; see click.Command.main."""
        given = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(given, prog_name, complete_var, False, windows_expand_args, **extra)
        except _UsageError as error:
            if not error.format_message():  # A group without a command has shown its help.
                sys.exit(EXIT_USAGE)
            raise ConfigError(sentence(error, self, given)) from None
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def sentence(error: Any, commands: Any, given: Sequence[str]) -> str:
    """What was typed, why it cannot be, and whose --help knows more."""
    words, command = ["flashmob"], commands
    for word in given:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
        words.append(word)
    program = " ".join(words)
    return f"{_what(error, command, program, given)}; see {program} --help"


def _what(error: Any, command: Any, program: str, given: Sequence[str]) -> str:
    kind, message = type(error).__name__, str(error.format_message()).strip().rstrip(".")
    option = str(getattr(error, "option_name", "") or "")
    if kind == "NoSuchOption":
        known = [name for one in command.params for name in one.opts if name.startswith("--")]
        return f"{option} is not an option of {program}{did_you_mean(option, known)}"
    if kind == "BadOptionUsage" and "requires an argument" in message:
        metavar = next((one.metavar for one in command.params if option in one.opts), None)
        return f"{option} has no value; write {option} {metavar or 'VALUE'}"
    if kind == "MissingParameter":
        name = _name(error.param)
        value = f" {error.param.metavar}" if error.param.param_type_name == "option" and error.param.metavar else ""
        return f"{name} is missing; write {program} {name}{value}"
    if message.startswith("No such command"):
        typed = message.partition("'")[2].partition("'")[0]
        return f"{typed} is not a command of {program}{did_you_mean(typed, list(command.commands))}"
    if message.startswith("Got unexpected extra argument"):
        return f"{message.rpartition('(')[2].rstrip(')')} is more than {program} takes; leave it out"
    parameter = getattr(error, "param", None)
    if parameter is None:
        return message[:1].lower() + message[1:]
    why = message.partition(": ")[2] or message
    return f"{_typed(_name(parameter), given)} is not possible: {why[:1].lower()}{why[1:]}"


def _name(parameter: Any) -> str:
    """An option as it is written, or an argument as the help calls it."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper()).strip("[].")
    return str(parameter.opts[0])


def _typed(option: str, given: Sequence[str]) -> str:
    """The option with the value that it was given."""
    for place, word in enumerate(given):
        if word == option and place + 1 < len(given):
            return f"{option} {given[place + 1]}"
        if word.startswith(f"{option}="):
            return word
    return option
