"""Options of a replayed trace: what is refused at once, and how large the namespace becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flashmob.errors import ConfigError
from flashmob.options import BenchOptions
from flashmob.runner import prepare

ONE = "1,R,0,512,10\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(ONE, encoding="utf-8")
    return str(path)


def options(trace: str, overrides: dict[str, Any] | None = None, **given: Any) -> BenchOptions:
    return prepare("d7-ps1010", {"trace": trace, **given}, overrides)[1]


def test_a_trace_sizes_the_namespace_unless_a_size_is_given(trace: str, tmp_path: Path) -> None:
    assert options(trace).trace_sizes_namespace
    assert options(trace, media="generated").trace_sizes_namespace
    assert not options(trace, size="8G").trace_sizes_namespace
    assert not options(trace, {"subsystem.namespaces.0.size_bytes": 1 << 30}).trace_sizes_namespace
    # A file is as large as it is.
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    assert not options(trace, media=f"cow:{disk}").trace_sizes_namespace
    assert not prepare("d7-ps1010", {"size": "1G"})[1].trace_sizes_namespace
    assert not prepare("d7-ps1010", {})[1].trace_sizes_namespace


def test_a_trace_without_a_name_is_refused() -> None:
    for key in ("trace", "read_iolog"):
        with pytest.raises(ConfigError, match="name a file, or leave it out"):
            prepare("d7-ps1010", {key: "", "clock": "virtual"})


def test_a_trace_is_replayed_to_its_end_unless_limited(trace: str) -> None:
    assert options(trace).runtime_ns == 0
    assert options(trace, clock="virtual").ios == 0
    assert options(trace, runtime="90s").runtime_ns == 90_000_000_000
    limited = options(trace, ios=1000)
    assert (limited.ios, limited.runtime_ns) == (1000, 0)


def test_a_disk_is_chosen_by_name(trace: str) -> None:
    assert options(trace, trace_disk="hm_0").trace_disk == "hm_0"
    with pytest.raises(ConfigError, match="--trace-disk hm_0 is for a trace; add --trace"):
        prepare("d7-ps1010", {"trace_disk": "hm_0"}, command_line=True)


def test_what_the_trace_says_itself_is_refused(trace: str) -> None:
    for key, value in (("rw", "randwrite"), ("bs", "4k"), ("rate", "1M"), ("ramp", "1s"), ("requesters", 7)):
        with pytest.raises(ConfigError, match=f"--{key} .* is what --trace says itself"):
            prepare("d7-ps1010", {"trace": trace, key: value}, command_line=True)


def test_files_that_cannot_be_traces_are_refused_at_once(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match=f"--trace {path}"):
            prepare("d7-ps1010", {"trace": str(path)}, command_line=True)
