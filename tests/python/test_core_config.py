"""The models of profiles and options mirror the compiled module's structures, names, defaults and bounds."""

from __future__ import annotations

from typing import Any

import pytest
from flashmob import ConfigError, load_profile, profile_names
from flashmob.device import core_device
from flashmob.models import Controller, Engine, Fidelity, Namespace, Profile, Subsystem, Timing
from flashmob.options import BenchOptions
from flashmob.profiles import parse_profile
from pydantic import BaseModel

_core = pytest.importorskip("flashmob._core", reason="the compiled module is not built")

PAIRS = [
    (Timing, "TimingConfig"),
    (Namespace, "NamespaceConfig"),
    (Subsystem, "SubsystemConfig"),
    (Controller, "ControllerConfig"),
    (Engine, "EngineConfig"),
    (Fidelity, "FidelityConfig"),
    (BenchOptions, "BenchOptions"),
]


def attributes(instance: object) -> set[str]:
    return {name for name in dir(instance) if not name.startswith("_") and not callable(getattr(instance, name))}


@pytest.mark.parametrize(("model", "name"), PAIRS)
def test_names_and_defaults(model: type[BaseModel], name: str) -> None:
    compiled = getattr(_core, name)()
    fields = {field.alias or key: key for key, field in model.model_fields.items()}
    assert set(fields) == attributes(compiled)
    ours = model()
    for public, key in fields.items():
        if public in ("namespaces", "block_sizes"):
            assert len(getattr(ours, key)) == len(getattr(compiled, public)) == 1
        elif public == "unit_bytes":  # docs/decisions/0009: profiles count in 4 KiB, code in sectors.
            assert (getattr(ours, key), getattr(compiled, public)) == (4096, 512)
        else:
            value = getattr(ours, key)
            value = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
            value = list(value) if isinstance(value, tuple) else value
            assert value == getattr(compiled, public), public


def test_one_config_error() -> None:
    assert ConfigError is _core.ConfigError
    assert issubclass(ConfigError, ValueError)


@pytest.mark.parametrize("name", profile_names())
def test_packaged_profiles_are_valid_for_the_device(name: str) -> None:
    config = core_device(load_profile(name))
    assert config.profile == name
    assert config.timing.read_iops == load_profile(name).timing.read_iops


def test_everything_arrives() -> None:
    text = """
        seed = 77
        [timing]
        read_latency_ns = "60us"
        [engine]
        cores = [0, 1]
        copy = "memcpy"
        [subsystem]
        serial = "X1"
        [[subsystem.namespaces]]
        size_bytes = "1G"
        [[subsystem.namespaces]]
        size_bytes = "2G"
        lba_bytes = 4096
        media = "generated"
        shared = false
    """
    config = core_device(parse_profile(text))
    assert config.seed == 77
    assert (config.timing.model, config.timing.read_latency_ns) == ("simple", 60_000)
    assert (config.engine.cores, config.engine.copy) == ([0, 1], "memcpy")
    assert config.subsystem.serial == "X1"
    namespaces = [(ns.size_bytes, ns.lba_bytes, ns.media, ns.shared) for ns in config.subsystem.namespaces]
    assert namespaces == [(1 << 30, 512, "memory", True), (2 << 30, 4096, "generated", False)]


BOUNDS: list[tuple[str, str, list[Any], list[Any]]] = [
    ("timing", "instances", [1, 32], [0, 3, 2048]),
    ("timing", "unit_bytes", [512, 1 << 20], [256, 768, 2 << 20]),
    ("timing", "read_latency_ns", [1_000_000, 3_600_000_000_000], [10, 3_600_000_000_001]),
    ("timing", "read_iops", [1e9], [0.0, 10.0]),
    ("controller", "max_queue_pairs", [1, 4096], [0, 4097]),
    ("controller", "max_queue_entries", [2, 65536], [1, 65537]),
    ("controller", "max_transfer_bytes", [4096, 16 << 20], [2048, 12288, 32 << 20]),
    ("controller", "interrupt_vectors", [1, 4097], [0, 4098]),
    ("controller", "abort_limit", [1, 256], [0, 257]),
    ("controller", "async_event_limit", [1, 256], [0, 257]),
    ("engine", "units", [1, 64], [0, 65]),
    ("engine", "workers", [0, 16], [17]),
    ("engine", "fetch_limit", [1, 1024], [0, 1025]),
    ("engine", "cores", [[0, 1023]], [[1024]]),
    ("engine", "copy", ["auto", "nontemporal"], ["dma", ""]),
    ("engine", "idle_sleep_ns", [1, 10_000_000_000], [0, 10_000_000_001]),
    ("engine", "wheel_shift", [0, 20], [21]),
    ("subsystem", "serial", ["x" * 20], ["", "x" * 21, "\x07"]),
    ("subsystem", "model", ["x" * 40], ["", "x" * 41]),
    ("subsystem", "firmware", ["x" * 8], ["", "x" * 9]),
    ("subsystem", "nqn", ["nqn." + "x" * 219], ["", "mine", "nqn." + "x" * 220]),
    ("fidelity", "max_iops_error", [0.0, 1.0], [-0.1, 1.1]),
    ("fidelity", "gap_ns", [1], [0]),
]


@pytest.mark.parametrize(("section", "key", "good", "bad"), BOUNDS)
def test_both_sides_draw_the_same_bounds(section: str, key: str, good: list[Any], bad: list[Any]) -> None:
    def here(value: Any) -> bool:
        try:
            Profile.model_validate({section: {key: value}})
        except ValueError:
            return False
        return True

    def there(value: Any) -> bool:
        config = _core.DeviceConfig()
        setattr(getattr(config, section), key, value)
        try:
            config.validate()
        except ConfigError:
            return False
        return True

    for value in good:
        assert here(value), value
        assert there(value), value
    for value in bad:
        assert not here(value), value
        assert not there(value), value


def test_machine_info() -> None:
    info = _core.machine_info()
    assert info["cores"] >= 1
    assert info["tsc_ghz"] > 0.1
    assert info["cpu"]
    assert isinstance(info["features"], list)
