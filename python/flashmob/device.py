"""From a checked profile to the compiled module's configuration."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from flashmob.errors import ConfigError
from flashmob.models import Profile

if TYPE_CHECKING:
    from flashmob import _core


def core_module() -> ModuleType:
    """The compiled module, or one sentence that says how to get it."""
    try:
        from flashmob import _core
    except ImportError as error:
        raise ConfigError(
            f"the compiled module flashmob._core cannot be loaded ({error}); run `make demo` or `pip install .` first"
        ) from None
    return _core


def core_device(profile: Profile) -> _core.DeviceConfig:
    """The DeviceConfig that a profile describes, validated by the C++ side too.

    Raises:
        ConfigError: naming file, key and fix.
    """
    core = core_module()
    config: _core.DeviceConfig = core.DeviceConfig()
    config.profile = profile.name
    config.seed = profile.seed
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
        raise ConfigError(f"{profile.path or profile.name}: {error}") from None
    return config


def _assign(target: Any, part: BaseModel, skip: tuple[str, ...] = ()) -> None:
    for name, field in type(part).model_fields.items():
        if name not in skip:
            setattr(target, field.alias or name, getattr(part, name))
