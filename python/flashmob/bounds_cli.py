"""flashmob explain: what limits a device under a load, in closed form, and what would lift it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from flashmob.bench_cli import FIO, BenchCommand
from flashmob.cli_options import LEFT_OUT, OF_PROFILE, Profile, Set, Size, with_keywords
from flashmob.errors import ConfigError
from flashmob.given import FIO_NAMES, Given

if TYPE_CHECKING:
    from flashmob import models
    from flashmob.options import BenchOptions

# What of a benchmark's options matters here, by the names of its fields.
_KNOWN = ("rw", "block_sizes", "read_share", "queues", "queue_depth", "requesters", "size", "clock")
_WIDTH = 80


class ExplainCommand(BenchCommand):
    """Takes fio's names for its options, as bench does."""

    left_out: ClassVar = {**LEFT_OUT, "size": OF_PROFILE}


@with_keywords(("rw", "bs", "read_share", "qd", "queues", "requesters"))
def explain(
    context: typer.Context,
    profile: Profile,
    size: Size = None,
    set_: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    **typed: Any,
) -> None:
    """Says what limits a device under a load, and what would lift it: by formulas, at once, without running it."""
    from flashmob.bounds_report import explanation, lines, to_dict

    fio = context.meta.get(FIO, {})
    for name in fio:
        if FIO_NAMES[name] not in _KNOWN:
            raise ConfigError(f"--{name} changes nothing that flashmob explain calculates; leave it out")
    device, load = prepared(profile, {**fio, **typed, "size": size}, set_ or [])
    explained = explanation(device, load)
    if as_json:
        print(json.dumps(to_dict(explained), indent=2))
        return
    console = Console()
    heading = Rule(Text(f"{device.name}, explained", style="bold"), align="left", style="cyan")
    console.print(heading, width=min(console.width, _WIDTH))
    for line in lines(explained):
        console.print(Text(line), soft_wrap=True, highlight=False)


def prepared(profile: str, options: dict[str, Any], assignments: list[str]) -> tuple[models.Profile, BenchOptions]:
    """The device and the load that options describe; `assignments` are those of --set.

    Raises:
        ConfigError: for whatever is wrong, as with a benchmark of the same.
    """
    from flashmob.checks import check_fit
    from flashmob.device import check_engine_keys
    from flashmob.options import make_options
    from flashmob.profiles import load_profile, namespace_overrides, parse_overrides, with_overrides

    overrides = parse_overrides(assignments)
    # In virtual time nothing of this machine matters: neither its cores nor its memory.
    given = Given({**options, "clock": "virtual"}, _KNOWN, command_line=True)
    device = load_profile(profile, overrides)
    check_engine_keys(overrides, device.engine.kind)
    for key, value in namespace_overrides(given.get("size"), None).items():
        if key in overrides:
            raise ConfigError(f"{given.shown('size')} and --set {key} mean the same; leave one of them out")
        device = with_overrides(device, {key: value}, {key: given.shown("size")})
    if not device.subsystem.namespaces:
        raise ConfigError(f"{device.path or device.name}: has no namespace to ask; add one to subsystem.namespaces")
    if device.subsystem.namespaces[0].command_set == "kv":
        raise ConfigError(
            f"{device.path or device.name}: has keys and values, and flashmob explain calculates what blocks take; "
            'give its first namespace command_set = "nvm"'
        )
    load = make_options(device, given)
    check_fit(given, device, load, is_run=False)
    return device, load
