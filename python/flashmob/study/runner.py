"""Takes a study's measurements one by one: what is there already is kept, and what is stopped goes on later."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from flashmob.errors import ConfigError
from flashmob.study.points import Settings, Trial, key, trials
from flashmob.study.pool import Measure, StoppedError, side_by_side
from flashmob.study.store import Store
from flashmob.study.table import Table

# Where no bar can be drawn a line is printed so often at most.
_SAY_S = 15.0
# Settings that are the same at all points and say nothing to who looks on.
_UNSAID = ("machine", "file")


@dataclass(frozen=True)
class Study:
    """A name, points, and how one of them is measured."""

    name: str
    points: Sequence[Settings]
    measure: Measure
    repeats: int = 1
    seed: int = 1
    # How long a measurement takes compared with others, for the time that is left.
    work: Callable[[Settings], float] = field(default=lambda _settings: 1.0)
    # Whether a result that is there already stands; else it is measured again.
    is_done: Callable[[dict[str, Any]], bool] = field(default=lambda _result: True)
    # What `measure` is given for a trial, such as a seed of its own for each repeat; the point's settings.
    given: Callable[[Trial], Settings] = field(default=lambda trial: trial.settings)
    # More than one: so many at a time, each in a process that finds `measure` by its name. In real time they disturb
    # each other.
    jobs: int = 1
    # What a point is called while it is measured; all its settings.
    label: Callable[[Settings], str] | None = None

    def run(self, out: str | os.PathLike[str], *, console: Console | None = None, fresh: bool = False) -> Table:
        """Measures what `out` does not hold yet; see run_study()."""
        console = console or Console(stderr=True)
        store = Store(Path(out), self.name)
        todo = trials(self.points, repeats=self.repeats, seed=self.seed)
        found = {}
        for place, trial in enumerate(() if fresh else todo):
            if (kept := store.load(trial)) and self.is_done(kept):
                found[place] = kept
        if found:
            console.print(
                f"{len(found)} of {len(todo)} measurements are in {out} already", highlight=False, markup=False
            )
        missing = [place for place in range(len(todo)) if place not in found]
        is_whole = self._take(todo, missing, found, store, console)
        if not is_whole:
            words = (
                f"stopped: {len(found)} of {len(todo)} measurements are in {out}; the same command goes on from there"
            )
            console.print(words, highlight=False, soft_wrap=True, markup=False)
        # Rows stand as the points do, whatever the order in which they were measured.
        rank = {key(point): number for number, point in enumerate(self.points)}
        places = sorted(found, key=lambda place: (rank[key(todo[place].settings)], todo[place].repeat))
        new = [found[place] for place in missing if place in found]
        return Table([(todo[place], found[place]) for place in places], is_whole=is_whole, new=new)

    def _take(
        self, todo: list[Trial], missing: list[int], found: dict[int, dict[str, Any]], store: Store, console: Console
    ) -> bool:
        """Measures what is missing; whether all of it was."""
        columns = (
            TextColumn(self.name),
            BarColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            TimeElapsedColumn(),
        )
        total = sum(self.work(todo[place].settings) for place in missing)
        meter = _Meter(len(missing), total)
        with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
            task = progress.add_task("", total=total, text=meter.text(""))

            def show(place: int | None = None) -> None:
                progress.update(task, text=meter.text("" if place is None else self._name(todo[place])))

            def keep(place: int, result: dict[str, Any]) -> None:
                trial = todo[place]
                if not isinstance(result, dict):
                    raise ConfigError(
                        f"measuring {self._name(trial)} gave {type(result).__name__}; return a dictionary"
                    )
                store.save(trial, result)
                found[place] = result
                work = self.work(trial.settings)
                meter.step(work)
                progress.update(task, advance=work)
                if not console.is_terminal and meter.is_due():
                    console.print(meter.text(self._name(trial)), highlight=False, soft_wrap=True, markup=False)

            try:
                if self.jobs > 1 and missing:
                    self._several(todo, missing, keep, show)
                else:
                    for place in missing:
                        show(place)
                        keep(place, self.measure(self.given(todo[place])))
            except (KeyboardInterrupt, StoppedError):
                return False
        return True

    def _several(
        self,
        todo: list[Trial],
        missing: list[int],
        keep: Callable[[int, dict[str, Any]], None],
        show: Callable[[], None],
    ) -> None:
        # The longest first, so that all processes end together.
        ordered = sorted(missing, key=lambda place: -self.work(todo[place].settings))
        given = {place: self.given(todo[place]) for place in ordered}
        with closing(side_by_side(self.measure, given, self.jobs)) as found:
            for place, result in found:
                keep(place, result)
                show()

    def _name(self, trial: Trial) -> str:
        return describe(trial) if self.label is None else self.label(trial.settings)


def run_study(
    name: str,
    points: Iterable[Settings],
    measure: Measure,
    *,
    out: str | os.PathLike[str],
    repeats: int = 1,
    seed: int = 1,
    fresh: bool = False,
    console: Console | None = None,
) -> Table:
    """Measures every point `repeats` times, in an order drawn from `seed`, and returns what was found as a table.

    Each result is a file in `out` as soon as it is there. Ctrl-C loses the measurement that is under way and no other:
    the same call goes on from there, and says in `Table.is_whole` whether all are there. `fresh` measures all again.

    Raises:
        ConfigError: if there are no points, or `out` cannot be written.
    """
    return Study(name, list(points), measure, repeats, seed).run(out, console=console, fresh=fresh)


def describe(trial: Trial) -> str:
    """A measurement in a line: its settings, and which repeat it is."""
    words = ", ".join(f"{name} {value}" for name, value in trial.settings.items() if name not in _UNSAID)
    return words if trial.repeat == 0 else f"{words}, again ({trial.repeat + 1})"


class _Meter:
    """How much is done, and how long the rest will take if it goes on as so far."""

    def __init__(self, count: int, total: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._count, self._total, self._now_s = count, total, now_s
        self._steps, self._done = 0, 0.0
        self._started_s = self._said_s = now_s()

    def step(self, work: float) -> None:
        self._steps += 1
        self._done += work

    def text(self, name: str) -> str:
        left = ""
        if self._done > 0:
            left_s = (self._now_s() - self._started_s) * (self._total - self._done) / self._done
            left = f", about {left_s / 60:.0f} min left" if left_s > 100 else f", about {left_s:.0f} s left"
        return f"{self._steps} of {self._count}{left}" + (f": {name}" if name else "")

    def is_due(self) -> bool:
        if self._now_s() - self._said_s < _SAY_S:
            return False
        self._said_s = self._now_s()
        return True
