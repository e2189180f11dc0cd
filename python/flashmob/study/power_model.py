"""A machine's power, calculated from how many of its cores were busy: a model, and called one wherever it is shown."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from flashmob.errors import ConfigError
from flashmob.units import parse_number

# Those that come with the package, by name.
MODELS = Path(__file__).with_name("power_models")


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Watts of the idle machine, and of what is added with 1, 2, 3, ... busy cores; in between lie straight lines."""

    name: str
    source: str
    idle_w: float
    cores_w: tuple[float, ...]

    @classmethod
    def read(cls, name_or_path: str) -> PowerModel:
        """A packaged model by its name, or any by its file.

        Raises:
            ConfigError: naming the key that is missing or wrong.
        """
        path = Path(name_or_path)
        if path.suffix != ".toml":
            path = MODELS / f"{name_or_path}.toml"
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            known = ", ".join(sorted(one.stem for one in MODELS.glob("*.toml")))
            raise ConfigError(
                f"--power-model {name_or_path}: cannot be read ({error}); name a .toml file, or one of {known}"
            ) from None
        return cls._of(f"--power-model {name_or_path}", path.stem, found)

    @classmethod
    def _of(cls, shown: str, name: str, found: Mapping[str, Any]) -> PowerModel:
        for key in found:
            if key not in ("source", "idle_w", "cores_w"):
                raise ConfigError(f"{shown}: {key} is not known; it has source, idle_w and cores_w")
        source, cores = found.get("source"), found.get("cores_w")
        if not isinstance(source, str) or not source.strip():
            raise ConfigError(f"{shown}: source is missing; say where its watts come from")
        idle = parse_number(found.get("idle_w"))
        if idle is None or not 0 <= idle < 1e6:
            raise ConfigError(f"{shown}: idle_w = {found.get('idle_w')} is not possible; give the idle machine's watts")
        numbers = [parse_number(one) for one in cores] if isinstance(cores, list) else []
        watts = tuple(float(one) for one in numbers if one is not None)
        if not watts or len(watts) != len(numbers):
            raise ConfigError(f"{shown}: cores_w is missing; list what 1, 2, 3, ... busy cores add, in watts")
        if any(not before <= now < 1e6 for before, now in pairwise((0.0, *watts))):
            raise ConfigError(f"{shown}: cores_w = {cores} falls; more busy cores never take less")
        return cls(name, source, float(idle), watts)

    def watts_above_idle(self, busy: float) -> float:
        """What so many busy cores add; more than the machine has take no more."""
        watts = (0.0, *self.cores_w)
        below = min(int(busy), len(self.cores_w))
        if below == len(self.cores_w):
            return watts[below]
        return watts[below] + (busy - below) * (watts[below + 1] - watts[below])

    def energy(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """As energy_of() has it, of the cores that did the I/O and helped; an emulator's are none of the host's."""
        seconds = result["seconds"]
        threads, helpers = result.get("threads_cpu") or {}, result.get("helpers_cpu") or {}
        own_ns = threads.get("cpu_ns", (threads.get("user_ns") or 0) + (threads.get("system_ns") or 0))
        above = self.watts_above_idle((own_ns + helpers.get("cpu_ns", 0)) / 1e9 / seconds) if seconds > 0 else 0.0
        return {
            "source": "model",
            "meter": self.name,
            "joules": (self.idle_w + above) * seconds,
            "watts": self.idle_w + above,
            "idle_watts": self.idle_w,
            "joules_above_idle": above * seconds,
        }
