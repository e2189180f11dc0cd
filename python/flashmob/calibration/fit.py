"""Fits a profile's numbers, stage by stage, to points: what is minimised is the device's own error in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flashmob.calibration.points import Figures, Point
from flashmob.calibration.simulate import Simulator
from flashmob.calibration.stages import Parameter, Stage
from flashmob.errors import ConfigError
from flashmob.profiles import load_profile

# A stage looks at so many points at most, spread over sizes and depths: more say the same.
_MOST_POINTS = 10
_TRIES = 24
# Percentiles of a tail are shaped by more than a stage's parameters.
_WEIGHTS = {"iops": 1.0, "mean_ns": 1.0, "p50_ns": 1.0, "p99_ns": 0.3}
# Beyond this an error counts in proportion: a point that the model cannot meet must not bend the others.
_PROPORTIONAL = 0.1
# A parameter that moves no figure by this share when it is moved by _NUDGE is not determined.
_UNSEEN, _NUDGE = 0.01, 1.25
# Worse than any device that is possible, and a number that an optimiser can reckon with.
_IMPOSSIBLE = 1e9


@dataclass(slots=True)
class Fitted:
    """A parameter's outcome: `error` is the median of the stage's points; `why_not` says why it is not known."""

    key: str
    stage: str
    value: float
    points: int
    error: float | None = None
    why_not: str | None = None


@dataclass(slots=True)
class Fit:
    """The settings that were found, and how each came about."""

    settings: dict[str, Any] = field(default_factory=dict)
    parameters: list[Fitted] = field(default_factory=list)


def needs_optimiser() -> Any:
    """scipy.optimize.

    Raises:
        ConfigError: if it is not installed.
    """
    try:
        from scipy import optimize
    except ImportError:
        raise ConfigError("calibrate needs scipy, which is not installed; pip install scipy") from None
    return optimize


def error_of(measured: float | None, modelled: float | None) -> float | None:
    """By which share of what was measured a model is off; None where either is unknown."""
    if measured is None or modelled is None or measured <= 0:
        return None
    return modelled / measured - 1


def _loss(points: Sequence[Point], modelled: Sequence[Figures], figures: Sequence[str]) -> float:
    total = weights = 0.0
    for point, model in zip(points, modelled, strict=True):
        for name in figures:
            measured, value = getattr(point.measured, name), getattr(model, name)
            if measured and value:
                off = abs(math.log(value / measured))
                weight = _WEIGHTS[name]
                total += weight * (off * off / _PROPORTIONAL / 2 if off < _PROPORTIONAL else off - _PROPORTIONAL / 2)
                weights += weight
    return total / weights if weights else _IMPOSSIBLE


def _spread(points: Sequence[Point]) -> list[Point]:
    ordered = sorted(points, key=lambda point: (point.load.bs_bytes, point.load.in_flight, point.key))
    if len(ordered) <= _MOST_POINTS:
        return ordered
    step = (len(ordered) - 1) / (_MOST_POINTS - 1)
    return [ordered[round(index * step)] for index in range(_MOST_POINTS)]


def fit(
    simulator: Simulator,
    stages: Sequence[Stage],
    points: Sequence[Point],
    settings: dict[str, Any],
    say: Callable[[str], None] = lambda _: None,
) -> Fit:
    """Fits stage after stage, from `settings` on. A parameter that no point shows keeps its value.

    Raises:
        ConfigError: if scipy is missing.
    """
    optimize = needs_optimiser()
    found = Fit(dict(settings))
    outcomes: dict[str, Fitted] = {}
    for stage in stages:
        chosen = _spread(stage.select(points))
        profile = load_profile(simulator.profile, found.settings)
        if not chosen:
            for parameter in stage.parameters:
                value = parameter.value(profile)
                outcomes.setdefault(
                    parameter.key, Fitted(parameter.key, stage.name, value, 0, why_not="no point shows it")
                )
            continue
        say(stage.name)
        for parameter in stage.parameters:
            start = parameter.start(chosen, profile) if parameter.start is not None else None
            if start is not None and not parameter.choices:
                _try_put(found.settings, simulator, parameter, min(max(start, parameter.least), parameter.most))
        _fit_stage(optimize, simulator, stage, chosen, found.settings)
        for parameter in stage.parameters:
            outcomes[parameter.key] = _outcome(simulator, stage, parameter, chosen, found.settings)
    found.parameters = list(outcomes.values())
    return found


def _try_put(settings: dict[str, Any], simulator: Simulator, parameter: Parameter, value: float) -> bool:
    """Sets a parameter unless the device would not be possible."""
    changed = dict(settings)
    parameter.put(changed, load_profile(simulator.profile, settings), value)
    try:
        load_profile(simulator.profile, changed)
    except ConfigError:
        return False
    settings.update(changed)
    return True


def _fit_stage(
    optimize: Any, simulator: Simulator, stage: Stage, points: Sequence[Point], settings: dict[str, Any]
) -> None:
    """Leaves the best settings that were tried in `settings`."""
    ranges = [one for one in stage.parameters if not one.choices]
    best = (_stage_loss(simulator, stage, points, settings), dict(settings))

    def tried(values: Sequence[float], names: Sequence[Parameter]) -> float:
        nonlocal best
        changed = dict(settings)
        if not all(_try_put(changed, simulator, one, value) for one, value in zip(names, values, strict=True)):
            return _IMPOSSIBLE
        loss = _stage_loss(simulator, stage, points, changed)
        if loss < best[0]:
            best = (loss, changed)
        return loss

    for parameter in stage.parameters:
        for choice in parameter.choices:
            tried([choice], [parameter])
    if ranges:
        profile = load_profile(simulator.profile, settings)
        start = [math.log(max(one.value(profile), one.least)) for one in ranges]
        bounds = [(math.log(one.least), math.log(one.most)) for one in ranges]
        simplex = [start] + [
            [value + (0.25 if index == axis else 0.0) for index, value in enumerate(start)]
            for axis in range(len(start))
        ]
        optimize.minimize(
            lambda logs: tried([math.exp(value) for value in logs], ranges),
            start,
            method="Nelder-Mead",
            bounds=bounds,
            options={"initial_simplex": simplex, "maxfev": _TRIES * len(ranges), "xatol": 0.003, "fatol": 1e-5},
        )
    settings.update(best[1])


def _stage_loss(simulator: Simulator, stage: Stage, points: Sequence[Point], settings: dict[str, Any]) -> float:
    try:
        return _loss(points, simulator.figures(settings, points), stage.figures)
    except ConfigError:
        return _IMPOSSIBLE


def _outcome(
    simulator: Simulator, stage: Stage, parameter: Parameter, points: Sequence[Point], settings: dict[str, Any]
) -> Fitted:
    value = parameter.value(load_profile(simulator.profile, settings))
    modelled = simulator.figures(settings, points)
    errors = sorted(_error(point, model) for point, model in zip(points, modelled, strict=True))
    outcome = Fitted(parameter.key, stage.name, value, len(points), errors[len(errors) // 2] if errors else None)
    others = [choice for choice in parameter.choices if choice != value]
    moved = others or [value * _NUDGE, value / _NUDGE]
    if parameter.whole and not others:
        moved = [max(value * _NUDGE, value + 1), min(value / _NUDGE, value - 1)]
    seen = False
    for other in moved:
        changed = dict(settings)
        if parameter.least <= other <= parameter.most and _try_put(changed, simulator, parameter, other):
            after = simulator.figures(changed, points)
            seen = seen or any(_differ(a, b, stage.figures) for a, b in zip(modelled, after, strict=True))
    if not seen:
        outcome.why_not = "the points are the same without it"
    return outcome


def _error(point: Point, model: Figures) -> float:
    """Of the mean latency where that was measured, else of the rate."""
    name = "iops" if point.measured.mean_ns is None else "mean_ns"
    return abs(error_of(getattr(point.measured, name), getattr(model, name)) or 0.0)


def _differ(one: Figures, other: Figures, figures: Sequence[str]) -> bool:
    for name in figures:
        before, after = getattr(one, name), getattr(other, name)
        if before and after and abs(math.log(after / before)) > _UNSEEN:
            return True
    return False
