"""What an operator or another program hands in, drawn at random: it is taken, or refused with one sentence.

Profiles and their overrides: test_profiles. More examples than here: FLASHMOB_FUZZ_EXAMPLES=20000.
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flashmob import ConfigError, Result, cli
from flashmob.lab import checked_lab, load_lab
from flashmob.plot_series import arrange
from flashmob.plot_table import table
from flashmob.plotting import load_results
from flashmob.report import show
from flashmob.rights import DOORS, LEVELS, levels_by_door
from flashmob.trace_report import trace_lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from test_profiles import VALUES, toml_value

EXAMPLES = int(os.environ.get("FLASHMOB_FUZZ_EXAMPLES", "200"))
MANY = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
LONGEST_SENTENCE = 4000

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(), st.text(max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=5,
)


def check_sentence(error: Exception) -> None:
    assert 0 < len(str(error)) < LONGEST_SENTENCE


# --- Rights ---

RULES = st.one_of(
    st.text(max_size=20),
    st.builds("{}={}".format, st.sampled_from([*DOORS, "udp", ""]), st.sampled_from([*LEVELS, "root", ""])),
    st.sampled_from(LEVELS),
)


@MANY
@given(st.lists(RULES, max_size=4))
def test_allow_rules(rules: list[str]) -> None:
    try:
        levels = levels_by_door(rules)
    except ValueError as error:
        check_sentence(error)
        return
    assert len(levels) == len(rules)
    assert set(levels) <= {"", *DOORS}
    assert set(levels.values()) <= set(LEVELS)


# --- Lab files ---

NAMES = st.one_of(st.sampled_from(["a", "b", "../x", "a b", ""]), st.text(max_size=8))
DOORS_AT = st.sampled_from(["127.0.0.1:4420", "[::1]:0", "0.0.0.0:70000", "/run/x", "", ":", "[", "host:1"])
SSD_VALUES: dict[str, st.SearchStrategy[object]] = {
    "name": NAMES,
    "profile": st.sampled_from(["unlimited", "d7-ps1010", "none such", "/dev/null", ""]),
    "vfio_user": DOORS_AT,
    "tcp": DOORS_AT,
    "host_nqns": st.lists(st.sampled_from(["nqn.2014-08.org.x", "nqn.x", "x", "nqn.\x00", ""]), max_size=3),
    "hosts": st.lists(st.dictionaries(st.sampled_from(["nqn", "key", "tls_key", "allow", "y"]), VALUES), max_size=2),
    "allow": st.lists(RULES, max_size=3),
    "tls": st.sampled_from(["required", "allowed", "off"]),
    "tls_key": st.one_of(st.just("NVMeTLSkey-1:01:MDAxMTIyMzM=:"), st.text(max_size=30)),
    "size": st.one_of(st.integers(-5, 1 << 70), st.sampled_from(["1G", "-1", "1e9G", "9" * 400, "x"])),
    "faults": st.lists(st.text(max_size=30), max_size=3),
    "isolate": st.booleans(),
    "set": st.dictionaries(st.sampled_from(["timing.read_iops", "a.b", "timing", ""]), VALUES, max_size=2),
}


@st.composite
def ssds(draw: st.DrawFn) -> dict[str, object]:
    keys = draw(st.lists(st.sampled_from(sorted(SSD_VALUES)), unique=True, max_size=7))
    ssd = {key: draw(SSD_VALUES[key]) for key in keys}
    for key in draw(st.lists(st.sampled_from([*SSD_VALUES, "units", "engine", "x"]), unique=True, max_size=1)):
        ssd[key] = draw(VALUES)
    return ssd


LABS = st.fixed_dictionaries(
    {},
    optional={
        "ssd": st.one_of(st.lists(ssds(), max_size=3), JSON),
        "metrics": st.one_of(DOORS_AT, JSON),
        "json_log": VALUES,
        "x": VALUES,
    },
)


@MANY
@given(LABS)
def test_labs_of_plain_data(data: dict[str, object]) -> None:
    try:
        lab = checked_lab(data, "lab")
    except ConfigError as error:
        check_sentence(error)
        return
    assert len({ssd.name for ssd in lab.ssd}) == len(lab.ssd) >= 1


def toml_table(table: dict[str, object]) -> str:
    return "".join(
        f"{key} = {toml_value(value)}\n" for key, value in table.items() if key not in {"hosts", "set"} and value != {}
    )


@MANY
@given(st.one_of(st.binary(max_size=120), st.lists(ssds(), max_size=2)))
def test_lab_files(tmp_path: Path, content: bytes | list[dict[str, object]]) -> None:
    if isinstance(content, list):
        content = "".join("[[ssd]]\n" + toml_table(one) for one in content).encode(errors="replace")
    path = tmp_path / "lab.toml"
    path.write_bytes(content)
    path.chmod(0o600)
    try:
        load_lab(path)
    except ConfigError as error:
        check_sentence(error)


# --- Results ---


def paths_of(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(one for key, inner in items for one in paths_of(inner, (*path, key)))]


@st.composite
def changes(draw: st.DrawFn, at_most: int = 3) -> list[tuple[int, object]]:
    return draw(st.lists(st.tuples(st.integers(0, 10_000), JSON), min_size=1, max_size=at_most))


def changed(document: dict[str, Any], what: list[tuple[int, object]]) -> object:
    document = copy.deepcopy(document)
    for place, value in what:
        paths = paths_of(document)[1:]
        *way, last = paths[place % len(paths)]
        inner: Any = document
        for key in way:
            inner = inner[key]
        if place % 7 == 0:
            del inner[last]
        else:
            inner[last] = value
        if not document:
            break
    return document


@MANY
@given(changes())
def test_results_of_other_programs(
    result_document: Callable[..., dict[str, Any]], what: list[tuple[int, object]]
) -> None:
    """A damaged document is refused, or it is what it was when it is written again."""
    text = json.dumps(changed(result_document(), what))
    try:
        result = Result.from_json(text)
        again = Result.from_json(result.to_json())
    except ConfigError as error:
        check_sentence(error)
        return
    assert again.to_json() == result.to_json()


@MANY
@given(changes(at_most=2))
def test_damaged_results_are_shown_or_refused(
    result_document: Callable[..., dict[str, Any]], tmp_path: Path, what: list[tuple[int, object]]
) -> None:
    """Whatever reads result files says which file is wrong, and where, or shows what is in it: never a traceback."""
    path = tmp_path / "damaged.json"
    document = result_document(trace=TRACE, write=result_document()["read"], flash=FLASH)
    path.write_text(json.dumps(changed(document, what)), encoding="utf-8")
    try:
        (result,) = load_results([path])
    except ConfigError as error:
        check_sentence(error)
        if str(path) not in str(error):
            pytest.fail(f"names no file: {error}")
        return
    console = Console(file=io.StringIO(), width=80)
    show(console, result)
    assert repr(result)
    assert result._repr_html_()
    trace_lines(result.to_dict())
    console.print(table([result]))
    arrange([result, Result.from_dict(document)])


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("latency_ns", 5, "latency_ns"),
        ("latency_ns", {"mean": "long"}, "latency_ns.mean"),
        ("iops", 1e400, "iops"),
        ("model", {"latency_ns": {"p99": []}}, "model.latency_ns.p99"),
        ("options", {"queues": "many"}, "options.queues"),
        ("errors", {"0x281": None}, "errors.0x281"),
        ("faults", [{"rule": 3}], "faults.0.rule"),
        ("faults", None, "faults"),
        ("latency_cdf", [[1, 2, 3]], "latency_cdf.0"),
        ("verdict", 7, "verdict"),
        ("device", {"profile": 5}, "device.profile"),
    ],
)
def test_a_damaged_result_names_file_and_field(
    result_document: Callable[..., dict[str, Any]], tmp_path: Path, key: str, value: object, said: str
) -> None:
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(result_document(**{key: value})), encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(f"{path}: {said} ")):
        Result.load(path)


@MANY
@given(st.text(max_size=80))
def test_results_of_any_text(text: str) -> None:
    with pytest.raises(ConfigError):
        Result.from_json(text)


FLASH = {
    "write_amplification": 1.5,
    "host_written_bytes": 4096,
    "erased_superblocks": 1,
    "flash_reads": 2,
    "buffer_reads": 1,
}
TRACE = {"format": "fio", "requests": 3, "reads": 2, "read_bytes": 4096, "span_ns": 5, "end_bytes": 8192, "disks": []}


@MANY
@given(st.dictionaries(st.sampled_from([*TRACE, "writes", "skipped", "flushes"]), st.integers(0, 1 << 64), max_size=8))
def test_traces_of_a_result(numbers: dict[str, int]) -> None:
    numbers.pop("disks", None)
    lines = trace_lines({"trace": TRACE | numbers | {"format": "fio"}})
    assert all(len(line) < LONGEST_SENTENCE for line in lines)


# --- Command lines ---

WORDS = st.one_of(
    st.sampled_from(
        ["unlimited", "d7-ps1010", "vfio-user:/x", "nvme-tcp:1:2/x", "0", "-1", "4k", "1s", "zipf:9", "=", "--"]
    ),
    st.text(alphabet=string.printable, max_size=10),
)
BENCH = [
    "--rw",
    "--bs",
    "--qd",
    "--queues",
    "--runtime",
    "--ios",
    "--read-share",
    "--distribution",
    "--rate",
    "--clock",
    "--seed",
    "--size",
    "--media",
    "--verify",
    "--set",
    "--fault",
    "--trace",
    "--iodepth",
    "--numjobs",
    "--engine",
]
SERVE = [
    "--vfio-user",
    "--tcp",
    "--allow",
    "--config",
    "--metrics",
    "--interval",
    "--fault",
    "--size",
    "--tls",
    "--name",
]


def lines_of(command: str, names: list[str]) -> st.SearchStrategy[list[str]]:
    option = st.one_of(
        st.tuples(st.sampled_from(names), WORDS),
        st.builds(lambda name, value: (f"{name}={value}",), st.sampled_from(names), WORDS),
        st.tuples(WORDS),
    )
    return st.lists(option, max_size=5).map(lambda parts: [command, *(word for part in parts for word in part)])


@MANY
@given(st.one_of(lines_of("bench", BENCH), lines_of("serve", SERVE), lines_of("plot", ["-o", "--title", "--kind"])))
def test_command_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """Everything is done as ever, up to the run itself."""

    def began(*_: object, **__: object) -> int:
        raise ConfigError("it would begin now; this test does not")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flashmob.runner.BenchRun", began)
    monkeypatch.setattr("flashmob.serve.serve", began)
    assert cli.run(lambda: cli.app(arguments, standalone_mode=True)) in (0, 1, 2)
    assert "Traceback" not in capsys.readouterr().err
