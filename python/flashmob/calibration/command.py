"""Calibrating, from sources to a profile; and checking a profile against sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flashmob.calibration.fit import Fit, fit, needs_optimiser
from flashmob.calibration.judge import Judged, summaries
from flashmob.calibration.points import Found, Point, held_out, joined
from flashmob.calibration.simulate import Simulator
from flashmob.calibration.stages import STAGES
from flashmob.errors import ConfigError
from flashmob.models import Profile
from flashmob.profile_toml import to_toml
from flashmob.profiles import load_profile

Model = Literal["simple", "nand"]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What came of it: the profile, how its numbers were found, and each point's error."""

    profile: Profile
    fit: Fit
    judged: list[Judged]
    found: Found

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "profile": self.profile.name,
            "settings": self.fit.settings,
            "parameters": [
                {"key": one.key, "value": one.value, "stage": one.stage, "points": one.points}
                | {"error": one.error, "not_determined": one.why_not}
                for one in self.fit.parameters
            ],
            **check_to_dict(self.judged, self.found),
        }


def check_to_dict(judged: Sequence[Judged], found: Found) -> dict[str, Any]:
    """The errors as JSON."""
    return {
        "left_out": found.left_out,
        "fitted": summaries([one for one in judged if one.fitted]),
        "held_out": summaries([one for one in judged if not one.fitted]),
        "points": [one.to_dict() for one in judged],
    }


def start_settings(base: str, model: Model) -> dict[str, Any]:
    """What makes a profile one of this model.

    Raises:
        ConfigError: if nand is wanted of a profile that does not say what its NAND is.
    """
    device = load_profile(base)
    if device.timing.model == model:
        return {}
    if model == "nand":
        raise ConfigError(
            f"{base} does not say of what NAND it is made; name one that does with --like, such as ps1010-nand"
        )
    if device.subsystem.namespaces[0].command_set != "nvm":
        raise ConfigError(f"{base} is not a block device; name another with --like")
    return {"timing.model": model}


def calibrate(
    found: Found,
    *,
    name: str,
    like: str,
    model: Model,
    hold_out: float,
    seed: int,
    jobs: int | None,
    sources: Sequence[Path],
    say: Callable[[str], None],
) -> Calibrated:
    """Fits a profile to what was found.

    Raises:
        ConfigError: naming what is wrong.
    """
    needs_optimiser()
    settings = start_settings(like, model)
    if model == "nand" and not any(point.load.read_share == 1 for point in found.points):
        raise ConfigError("nand is fitted from its reads on, and there are none here; add some, or use --model simple")
    fitted, held = held_out(joined(found.points), hold_out, seed)
    with Simulator(like, jobs) as simulator:
        outcome = fit(simulator, STAGES[model](), fitted, settings, say)
        say("judging")
        judged = judge(simulator, outcome.settings, fitted, held)
    return Calibrated(_profile(name, like, outcome, sources), outcome, judged, found)


def check(found: Found, *, profile: str, jobs: int | None) -> list[Judged]:
    """Every point's error, of a profile as it is; nothing is fitted.

    Raises:
        ConfigError: naming what is wrong.
    """
    with Simulator(profile, jobs) as simulator:
        return judge(simulator, {}, [], joined(found.points))


def judge(
    simulator: Simulator, settings: dict[str, Any], fitted: Sequence[Point], held: Sequence[Point]
) -> list[Judged]:
    """Every point with what the device came to, in the order of the loads."""
    both = [*fitted, *held]
    modelled = simulator.figures(settings, both)
    seen = {point.key for point in fitted}
    judged = [Judged(point, model, point.key in seen) for point, model in zip(both, modelled, strict=True)]
    return sorted(judged, key=lambda one: one.point.key)


def _profile(name: str, like: str, outcome: Fit, sources: Sequence[Path]) -> Profile:
    """The profile with a source for each number: the fit, or where it was taken from."""
    device = load_profile(like, outcome.settings)
    where = ", ".join(path.name for path in sources)
    said = {key: f"as {like} has it: {text}" for key, text in device.sources.items()}
    for one in outcome.parameters:
        key = one.key.partition(" ")[0]
        if one.why_not is None:
            said[key] = f"fitted to {where} by flashmob calibrate (stage {one.stage}, {one.points} points)"
        elif key in device.given_keys() and key not in outcome.settings:
            said.setdefault(key, f"as {like} has it; {where} does not determine it")
        elif key in outcome.settings and not said.get(key, "").startswith("fitted"):
            said[key] = f"fitted to {where} by flashmob calibrate, which do not determine it"
    return device.model_copy(
        update={"name": name, "description": f"calibrated from {where}"[:80], "sources": said, "path": None}
    )


def profile_text(calibrated: Calibrated) -> str:
    """The profile's file, which loads back equal."""
    return to_toml(calibrated.profile)
