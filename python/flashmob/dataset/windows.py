"""Rates of ways to the same files, in alternating windows: what disturbs the machine then disturbs all of them."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from flashmob.dataset.files import FileDataset
from flashmob.dataset.readers import Place
from flashmob.errors import ConfigError


@dataclass
class Way:
    """What one way did: a rate for each window."""

    name: str
    place: Place
    bytes_per_s: list[float] = field(default_factory=list)
    files_per_s: list[float] = field(default_factory=list)
    cpu_s_per_gb: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Median, least and most over the windows."""
        return {
            "name": self.name,
            "backend": self.place.resolved(),
            "source": self.place.source,
            "place": asdict(self.place),
            "bw_bytes": _spread(self.bytes_per_s),
            "files_per_s": _spread(self.files_per_s),
            "cpu_s_per_gb": _spread(self.cpu_s_per_gb),
            "windows_bw_bytes": self.bytes_per_s,
        }


def measure(
    places: Sequence[tuple[str, Place]],
    *,
    windows: int = 5,
    window_s: float = 1.0,
    between: Callable[[str, int], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Iterates over the same data set by each way in turn, `windows` times, and gives the rates as a document for JSON.

    Args:
        places: ways with their names. The first one is what the others are compared with, window by window.
        windows: of each way, 1 or more; a further one of each before them is not counted.
        window_s: how long each lasts; it ends with a whole sample.
        between: called before each window with the way's name and the window's number, from -1 on.
        options: of FileDataset, the same for all.

    Raises:
        ConfigError: where the ways lead to different files, or a number is not possible.
        FileReadError: where a file cannot be read.
    """
    if windows < 1 or window_s <= 0:
        raise ConfigError(f"windows = {windows} of {window_s} s are not possible: use 1 or more, above 0 s")
    ways = [Way(name, place) for name, place in places]
    with ExitStack() as stack:
        sets = [stack.enter_context(FileDataset(way.place, **options)) for way in ways]
        for way, files in zip(ways, sets, strict=True):
            if files.samples == 0:
                raise ConfigError(f"{way.place.source} holds no files; name a data set, or another pattern")
            if files.manifest.fingerprint != sets[0].manifest.fingerprint:
                raise ConfigError(
                    f"{way.place.source} holds other files than {ways[0].place.source}; name the same data set twice"
                )
        for window in range(-1, windows):
            for way, files in zip(ways, sets, strict=True):
                if between is not None:
                    between(way.name, window)
                _run_window(way, files, window_s, counts=window >= 0)
        manifest = sets[0].manifest
    # Empty files have a rate, too, but none in bytes.
    rates = [way.bytes_per_s if all(ways[0].bytes_per_s) else way.files_per_s for way in ways]
    ratios = [[own / other for own, other in zip(rate, rates[0], strict=True)] for rate in rates]
    return {
        "schema": "flashmob-files-bench",
        "schema_version": 1,
        "machine": {"cpus": os.cpu_count(), "system": platform.platform()},
        "files": len(manifest.entries),
        "size_bytes": manifest.size_bytes,
        "windows": windows,
        "window_s": window_s,
        "ways": [way.summary() | {"ratio": _spread(ratio)} for way, ratio in zip(ways, ratios, strict=True)],
    }


def _run_window(way: Way, files: FileDataset, window_s: float, *, counts: bool) -> None:
    """One window; where it is longer than an epoch, several epochs.

    Its clock runs from when the read-ahead is full and flows, so that what it has under way at the end is what it had
    under way at the begin: neither the first files of a cold start nor what is thrown away are the rate.
    """
    done_bytes = done_files = warm_bytes = 0
    cpu_before, begin = time.process_time(), time.perf_counter()
    is_warm = False
    elapsed = 0.0
    while not is_warm or elapsed < window_s:
        iteration = iter(files)
        for sample in iteration:
            elapsed = time.perf_counter() - begin
            if not is_warm:
                warm_bytes += sample.data.nbytes
                # Data sets and sources that are small or slow are warm after as long as the window itself.
                if warm_bytes >= files.ahead_bytes or elapsed >= window_s:
                    is_warm = True
                    elapsed = 0.0
                    cpu_before, begin = time.process_time(), time.perf_counter()
                continue
            done_bytes += sample.data.nbytes
            done_files += 1
            if elapsed >= window_s:
                break
        else:
            elapsed = time.perf_counter() - begin if is_warm else 0.0
            continue
        # Ends what is read ahead, so that it is not the next way's disturbance; outside of the measured time.
        cpu_s = time.process_time() - cpu_before
        iteration.close()
        break
    else:
        cpu_s = time.process_time() - cpu_before
    if counts:
        way.bytes_per_s.append(done_bytes / elapsed)
        way.files_per_s.append(done_files / elapsed)
        way.cpu_s_per_gb.append(cpu_s / done_bytes * 1e9 if done_bytes else 0.0)


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}
