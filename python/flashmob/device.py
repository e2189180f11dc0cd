"""From a checked profile to the compiled module's configuration."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from flashmob.errors import ConfigError
from flashmob.models import Profile
from flashmob.profiles import SET_BY_HAND, with_overrides

if TYPE_CHECKING:
    from flashmob import _core

_INDEX = re.compile(r"\[(\d+)\]", re.ASCII)


def core_module() -> ModuleType:
    """The compiled module, or one sentence that says how to get it."""
    try:
        from flashmob import _core
    except ImportError as error:
        raise ConfigError(
            f"the compiled module flashmob._core cannot be loaded ({error}); run `make demo` or `pip install .` first"
        ) from None
    return _core


def core_device(profile: Profile, named: Mapping[str, str] | None = None) -> _core.DeviceConfig:
    """The DeviceConfig that a profile describes, validated by the C++ side too.

    `named`: dotted keys that an option of its own gave -> that option as the user wrote it, for errors.

    Raises:
        ConfigError: naming the option, or file and key, and the fix.
    """
    core = core_module()
    config: _core.DeviceConfig = core.DeviceConfig()
    config.profile = profile.name
    config.seed = profile.seed
    config.faults = list(profile.faults)
    for part in (profile.timing, profile.controller, profile.engine, profile.fidelity, profile.subsystem):
        _assign(getattr(config, type(part).__name__.lower()), part, skip=("namespaces",))
    namespaces = []
    for namespace in profile.subsystem.namespaces:
        target = core.NamespaceConfig()
        _assign(target, namespace)
        namespaces.append(target)
    config.subsystem.namespaces = namespaces
    try:
        config.validate()
    except ConfigError as error:
        raise ConfigError(_as_written(str(error), profile, named or {})) from None
    try:
        core.check_faults(config.faults)
    except ConfigError as error:
        by_hand = profile.sources.get("faults") == SET_BY_HAND
        place = (named or {}).get("faults") or ("faults" if by_hand else profile.path or profile.name)
        raise ConfigError(f"{place}: {error}") from None
    return config


def _as_written(text: str, profile: Profile, named: Mapping[str, str]) -> str:
    """An error of the C++ side, which knows keys alone, with what the user wrote where an option gave the key."""
    key, _, value = text.partition(" = ")
    dotted = _INDEX.sub(r".\1", key)
    # Of a list that was given as a whole the error may name one.
    of_list = dotted.rpartition(".")
    if of_list[2].isdigit() and dotted not in profile.sources:
        dotted = of_list[0]
    if dotted in named:
        return f"{named[dotted]} {value[value.find('is not possible') :]}"
    if profile.sources.get(dotted) == SET_BY_HAND:
        return f"--set {dotted} = {value}"
    return f"{profile.path or profile.name}: {text}"


def check_engine_keys(given: Collection[str], kind: str) -> None:
    """Refuses the keys that say something about another engine than the SSD's.

    Raises:
        ConfigError: naming the key and the fix.
    """
    if "engine.sms" in given and kind != "gpu":
        raise ConfigError(
            "engine.sms is for the GPU engine, and would be ignored; leave it out, or set engine.kind to gpu"
        )


def on_engine(profile: Profile, kind: str | None, sms: str | int | None, given: Collection[str] = ()) -> Profile:
    """The profile with the engine that is asked for; its limits are lowered to those of a GPU's, but for `given` keys.

    Where the profile itself asks for a GPU, those that it sets stay, and are an error where they are too high.

    Raises:
        ConfigError: naming the option and the fix.
    """
    check_engine_keys(given, kind or profile.engine.kind)
    if kind is None and sms is None:
        if profile.engine.kind != "gpu":
            return profile
        given = {*profile.given_keys(), *given}
    if sms is not None and (kind or profile.engine.kind) != "gpu":
        raise ConfigError(f"sms = {sms} is for the GPU engine; leave it out, or use engine gpu")
    wanted: dict[str, Any] = {"engine.kind": kind or "gpu"}
    if sms is not None:
        wanted["engine.sms"] = sms
    changed = with_overrides(profile, {"engine.kind": "host", **({"engine.sms": sms} if sms is not None else {})})
    if wanted["engine.kind"] == "gpu":
        lowered = core_module().on_gpu_engine(core_device(changed), changed.engine.sms).controller
        for key in ("max_queue_pairs", "max_transfer_bytes"):
            if f"controller.{key}" not in given:
                wanted[f"controller.{key}"] = getattr(lowered, key)
    return with_overrides(profile, wanted)


def engine_note(profile: Profile, clock: str, way_out: str = "use --clock virtual, or --engine host") -> str:
    """One sentence on what runs the profile's engine where that is not plain; else empty."""
    if profile.engine.kind != "gpu":
        return ""
    if clock == "virtual":
        return "the GPU engine runs as fibres on the CPU, in virtual time"
    found = core_module().gpu_choose_backend("auto", "real")
    if found.name == "cuda":
        return f"the GPU engine runs on {found.device}"
    return (
        f"{found.reason.partition(';')[0]}; the GPU engine runs as fibres on the CPU, far slower than on a GPU: "
        f"{way_out}"
    )


def _assign(target: Any, part: BaseModel, skip: tuple[str, ...] = ()) -> None:
    for name, field in type(part).model_fields.items():
        if name not in skip:
            value = getattr(part, name)
            setattr(target, field.alias or name, value.model_dump() if isinstance(value, BaseModel) else value)
