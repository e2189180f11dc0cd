"""Measures a drive, a file or a served SSD, so that a profile can be fitted to it: a table is what it leaves.

A drive and a file are read by io_uring with O_DIRECT, what is served by our own driver. It is a study, so what is
stopped half-way goes on where it was.
"""

from __future__ import annotations

import csv
import io
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from flashmob.errors import ConfigError
from flashmob.options import is_target
from flashmob.outputs import write_text
from flashmob.study.interfaces import Plan, default_folder, is_done, seconds_of
from flashmob.study.pool import StoppedError
from flashmob.study.runner import Study
from flashmob.study.target import StudyTarget, study_target

PREFIX = "live:"
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SIZES = (4 << 10, 16 << 10, 128 << 10)
# Before the time that is measured.
_RAMP_SHARE = 0.25
_COLUMNS = ("rw", "bs_bytes", "iodepth", "numjobs", "iops", "lat_mean_us", "lat_p50_us", "lat_p99_us")


@dataclass(frozen=True, slots=True)
class Live:
    """How a source is measured: each load for so long; `writes` of what may be lost."""

    runtime_ns: int
    writes: bool = False
    sizes: Sequence[int] = SIZES
    depths: Sequence[int] = DEPTHS


def is_live(source: str) -> bool:
    """Whether a source is to be measured: it is called live:PATH, is a block device, or somebody serves it."""
    if source.startswith(PREFIX) or is_target(source):
        return True
    try:
        return stat.S_ISBLK(Path(source).stat().st_mode)
    except OSError:
        return False


def measure_live(source: str, how: Live, *, folder: Path | None, console: Console) -> Path:
    """Measures a source in `folder` (below out/calibrate/ where it is None), and returns the table's path.

    Raises:
        ConfigError: if it cannot be measured.
        StoppedError: after Ctrl-C; the same call goes on from there.
    """
    target = study_target(source.removeprefix(PREFIX), size=None, allow_writes=how.writes)
    plan = Plan(
        target,
        ["driver-poll" if target.is_driver else "io_uring"],
        ["randread", "randwrite"] if how.writes else ["randread"],
        list(how.sizes),
        list(how.depths),
        [1],
        how.runtime_ns,
        round(how.runtime_ns * _RAMP_SHARE),
        meters=(),
    )
    plan.check()
    out = folder or Path(default_folder(target, "calibrate"))
    study = Study("calibrate", plan.points(), plan.measure, work=seconds_of, is_done=is_done)
    table = study.run(out, console=console)
    if not table.is_whole:
        raise StoppedError
    path = out / "table.csv"
    write_text(path, table_text([(trial.settings, result) for trial, result in table.measured], target))
    return path


def table_text(measured: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], target: StudyTarget) -> str:
    """What was measured, as a table that calibrate reads.

    Raises:
        ConfigError: if a load could not be run, or failed.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for settings, result in measured:
        load = f"{settings['rw']} of {settings['block_bytes']} bytes, depth {settings['depth']}"
        if not result.get("supported"):
            raise ConfigError(f"{target.name}: {load}: {result.get('reason', 'cannot be measured')}")
        if any(result.get("errors", {}).values()) or not result["ios"]:
            raise ConfigError(f"{target.name}: {load}: requests failed, or none ended; measure it for longer")
        latency = result["latency_ns"]
        figures = (result["iops"], *(latency[name] / 1e3 for name in ("mean", "p50", "p99")))
        place = (settings["rw"], settings["block_bytes"], settings["depth"], settings["threads"])
        writer.writerow([*place, *(f"{value:.6g}" for value in figures)])
    return text.getvalue()
