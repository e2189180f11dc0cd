"""What `flashmob gpu run` is told: options of the workload and of the access, checked before an SSD is attached."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flashmob.device import core_device, core_module, on_engine
from flashmob.errors import ConfigError
from flashmob.explain import did_you_mean
from flashmob.profiles import load_profile, namespace_overrides, with_overrides
from flashmob.units import parse_count, parse_number, parse_size

if TYPE_CHECKING:
    from flashmob.gpu.inputs import Access

_ACCESSES = ("plain", "cached", "uncached", "share_table")
_POLICIES = ("direct", "lru", "clock", "fifo", "s3fifo")
# What each way to the data does not look at.
_UNUSED = {"plain": ("cache", "line", "policy"), "uncached": ("cache", "policy"), "share_table": ("cache", "policy")}
# These two drive the queues themselves, and have options of their own for it.
_WITHOUT_ACCESS = ("ctc", "random-io")
_GRAPHS = ("uniform", "kronecker")
SERVICES = ("kernel", "host", "callers")
# How the compiled module begins an error, and which of its keys are options of another name.
_KEY = re.compile(r"(?:\w+\.)?(\w+)(?: = [^ ]+ is not possible)?: ", re.ASCII)
_OPTIONS = {"cache_bytes": "cache", "line_bytes": "line", "size_bytes": "size", "queue_depth": "depth"}
# How the compiled module writes what it was asked for.
_CHOICE = re.compile(r'(?:gpu\.)?(backend|clock)(?: =)? "(\w+)"', re.ASCII)


def examples(workload: str) -> dict[str, Any]:
    """The options of a workload, each with a value of its kind.

    Raises:
        ConfigError: if there is no such workload.
    """
    from flashmob.gpu.bench import WORKLOADS
    from flashmob.gpu.device import Gpu

    if workload not in WORKLOADS:
        known = list(WORKLOADS)
        raise ConfigError(f"{workload} is not a workload{did_you_mean(workload, known)}; use one of {', '.join(known)}")
    graph = {"graph": _GRAPHS[0], "scale": 10, "degree": 16, "seed": 1}
    if workload == "ctc":
        return _fields(core_module().GpuCtcOptions())
    if workload == "random-io":
        return _fields(core_module().GpuRandomIoOptions())
    if workload == "dlrm":
        return {"config": 1} | _fields(core_module().gpu_dlrm_options(1))
    # The methods' own parameters; the graph and the vector of a graph's workload are made here.
    parameters = inspect.signature(getattr(Gpu, workload)).parameters
    own = {
        name: 0 if parameter.default is None else parameter.default
        for name, parameter in parameters.items()
        if name not in ("self", "access", "graph", "x")
    }
    return (graph if "graph" in parameters else {}) | own


def _fields(options: Any) -> dict[str, Any]:
    return {name: getattr(options, name) for name in dir(options) if not name.startswith("_") and name != "access"}


def workload_options(workload: str, pairs: list[str]) -> dict[str, Any]:
    """KEY=VALUE texts as the workload's options, each of its kind.

    Raises:
        ConfigError: naming the pair, and what is possible.
    """
    known = examples(workload)
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"--set {pair} is not possible: write KEY=VALUE, such as {next(iter(known))}=...")
        if key not in known:
            hint = did_you_mean(key, list(known)) or f"; use one of {', '.join(sorted(known))}"
            raise ConfigError(f"--set {pair}: {key} is not an option of {workload}{hint}")
        try:
            options[key] = _value(key, text.strip(), known[key])
        except ValueError as error:
            raise ConfigError(f"--set {pair} is not possible: {error}") from None
    return options


def _value(key: str, text: str, example: Any) -> Any:
    if isinstance(example, bool):
        if text not in ("true", "false"):
            raise ValueError("use true or false")
        return text == "true"
    if isinstance(example, int):
        number = parse_size(text, binary=True) if key == "bytes" else parse_count(text)
        most = (1 << (64 if key == "seed" else 32)) - 1
        if not 0 <= number <= most:
            raise ValueError(f"use 0 to {most}")
        return number
    if isinstance(example, float):
        return _float(text)
    if isinstance(example, list):
        return [_float(part) for part in text.split(",")]
    if key == "graph" and text not in _GRAPHS:
        raise ValueError(f"use {' or '.join(_GRAPHS)}")
    return text


def _float(text: str) -> float:
    number = parse_number(text)
    if number is None:
        raise ValueError("use a number such as 0.85")
    return float(number)


def access_of(workload: str, given: Mapping[str, Any]) -> Access:
    """How the workload reaches its data, from the options that were given; None counts as not given.

    Raises:
        ConfigError: naming the option, for values that cannot be and options that would have no effect.
    """
    from flashmob.gpu.inputs import Access

    options = {name: value for name, value in given.items() if value is not None}
    if workload in _WITHOUT_ACCESS and options:
        name = next(iter(options))
        instead = f"use --set {name}=..." if name in examples(workload) else "leave it out"
        raise ConfigError(f"--{name} {options[name]} is not for {workload}, which drives the queues itself; {instead}")
    access, policy = options.get("access", "cached"), options.get("policy", "clock")
    check_choice("--access", access, _ACCESSES)
    check_choice("--policy", policy, _POLICIES)
    for name in _UNUSED.get(access, ()):
        if name in options:
            raise ConfigError(f"--{name} {options[name]} has no effect with --access {access}; leave one of them out")
    threads = options.get("threads", 256)
    if threads % 32 or not 32 <= threads <= 65536:
        raise ConfigError(f"--threads {threads} is not possible: use a multiple of 32 from 32 to 65536")
    return Access(
        access,
        _bytes("--cache", options.get("cache", "1M")),
        _bytes("--line", options.get("line", "4096")),
        policy,
        threads,
    )


def _bytes(option: str, text: str) -> int:
    try:
        return parse_size(text, binary=True)
    except ValueError as error:
        raise ConfigError(f"{option} {text} is not possible: {error}") from None


def check_ssd(profile: str, *, size: str | None, media: str | None = None, engine: str | None, sms: int | None) -> None:
    """Fails where the profile cannot be, or not with these options, before anything is started.

    Raises:
        ConfigError: naming the option as it was written.
    """
    store = "subsystem.namespaces.0."
    wanted: dict[str, Any] = dict(namespace_overrides(size, media))
    if engine is not None:
        wanted["engine.kind"] = engine
    named = {f"{store}size_bytes": f"--size {size}", f"{store}media": f"--media {media}"}
    named["engine.kind"] = f"--engine {engine}"
    changed = with_overrides(load_profile(profile), wanted, named)
    if sms is not None and changed.engine.kind != "gpu":
        raise ConfigError(f"--sms {sms} is for the GPU engine; add --engine gpu, or leave it out")
    core_device(on_engine(changed, engine, sms), {key: shown for key, shown in named.items() if key in wanted})


@contextmanager
def typed_errors(typed: Mapping[str, Any], pairs: Sequence[str]) -> Iterator[None]:
    """Errors of the compiled module, which knows keys alone, in what was typed: options, and the pairs of --set.

    Raises:
        ConfigError: naming the option as it is written.
    """
    try:
        yield
    except ConfigError as error:
        found = _KEY.match(str(error))
        given = {pair.partition("=")[0].strip(): pair for pair in pairs}
        if found is None:
            raise
        name, why = found[1], str(error)[found.end() :]
        option = _OPTIONS.get(name, name)
        if name in given:
            raise ConfigError(f"--set {given[name]} is not possible: {why}") from None
        if option in typed:
            value = f" {typed[option]} is not possible" if typed[option] is not None else ""
            raise ConfigError(f"--{option}{value}: {why}") from None
        raise


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Fails where a word is none of those that an option knows."""
    if value not in choices:
        raise ConfigError(f"{option} {value} is not possible: use one of {', '.join(choices)}")


def check_backend(backend: str, clock: str = "auto") -> None:
    """Fails where this machine has no such backend, or not with this clock.

    Raises:
        ConfigError: naming the options as they are written.
    """
    try:
        core_module().gpu_choose_backend(backend, clock)
    except ConfigError as error:
        raise ConfigError(_CHOICE.sub(r"--\1 \2", str(error))) from None


def check_range(option: str, value: int | None, least: int, most: int) -> None:
    """Fails where a number is out of bounds; `option` is its name as it is written."""
    if value is not None and not least <= value <= most:
        raise ConfigError(f"{option} {value} is not possible: use {least} to {most}")
