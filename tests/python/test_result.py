"""Results: read, written back, compared, tabulated."""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flashmob import Result
from flashmob.errors import ConfigError

Document = Callable[..., dict[str, Any]]


def test_round_trip(result_document: Document) -> None:
    document = result_document(something_new={"a": [1, 2]})
    result = Result.from_json(json.dumps(document))
    assert result.iops == 2.469e6
    assert result.latency_ns.p99999 == 90_000
    assert result.target_ns.p9999 is None
    assert result.gaps.count == 31
    assert result.host_gaps.longest_ns == 25_000
    assert result.latency_cdf[1] == (51_000.0, 0.5)
    assert result.extra == {"something_new": {"a": [1, 2]}}
    assert json.loads(result.to_json()) == document
    assert Result.from_json(result.to_json(indent=None)) == result


def test_directions_and_model_are_typed(result_document: Document) -> None:
    result = Result.from_dict(result_document())
    assert result.read is not None
    assert result.read.latency_ns.p99 == 60_000
    assert result.write is None
    assert result.model is not None
    assert result.model.latency_ns.mean == 51_000
    assert result.tolerance is not None
    assert result.tolerance.mean_ns == 1020
    assert result.error_bound_ns is not None
    assert result.error_bound_ns.mean == 201


def test_the_first_schema_is_still_read(result_document: Document) -> None:
    document = result_document(schema_version=1)
    new = ("read", "write", "failed", "error_names", "model", "tolerance", "fetch_wait_ns", "error_bound_ns")
    new += (
        "path_ns",
        "long_work",
        "host_long_work",
        "backlog_share",
        "busy_share",
        "unfinished",
        "not_verified",
        "trace",
    )
    for key in new:
        del document[key]
    result = Result.from_dict(document)
    assert result.model is None
    assert result.to_dict()["schema_version"] == 1
    assert Result.from_json(result.to_json()) == result


def test_repr_is_one_line(result_document: Document) -> None:
    text = repr(Result.from_dict(result_document()))
    assert text == "<Result d7-ps1010: 2.469 MIOPS, mean 51.23 us, p99 60.00 us, real time, VALID>"


def test_a_notebook_shows_a_table_and_trusts_nothing(result_document: Document) -> None:
    document = result_document(verdict="INVALID", verdict_cause="<b>late</b>", device={"profile": "<script>"})
    html = Result.from_dict(document)._repr_html_()
    for words in (
        "<table>",
        "2.469 MIOPS",
        "<th>reads</th>",
        "<th>model</th>",
        "INVALID",
        "&lt;b&gt;late",
        "&lt;script",
    ):
        assert words in html
    assert "<script>" not in html


def test_results_do_not_change(result_document: Document) -> None:
    result = Result.from_dict(result_document())
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.iops = 1.0  # type: ignore[misc]


def test_no_model(result_document: Document) -> None:
    assert Result.from_dict(result_document(model_iops=None, verdict="NONE")).model_iops is None


def test_comparable_leaves_out_what_depends_on_the_machine(result_document: Document) -> None:
    here = Result.from_dict(result_document())
    there = Result.from_dict(result_document(wall_seconds=99.0, provenance={"cpu": "another"}))
    slower = Result.from_dict(result_document(iops=1.0))
    assert here.comparable == there.comparable
    assert here.comparable != slower.comparable


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "fio"}, "not a flashmob result"),
        ({"schema_version": 3}, "schema_version 3"),
        ({"schema_version": None}, "schema_version None"),
        ({"iops": None}, "damaged"),
        ({"path_ns": "x"}, "damaged"),
        ({"jobname": 3}, "damaged"),
        ({"latency_ns": {"mean": 10**400}}, "damaged"),
        ({"latency_ns": 3}, "damaged"),
        ({"latency_ns": {"mean": "x"}}, "damaged"),
        ({"latency_cdf": [[1]]}, "damaged"),
        ({"gaps": [1]}, "damaged"),
        ({"read": 3}, "damaged"),
        ({"model": {"iops": "fast"}}, "damaged"),
    ],
)
def test_documents_that_are_no_result(change: dict[str, object], words: str, result_document: Document) -> None:
    with pytest.raises(ConfigError, match=words):
        Result.from_dict(result_document(**change))


def test_a_result_needs_its_main_figures(result_document: Document) -> None:
    document = copy.deepcopy(result_document())
    del document["iops"]
    with pytest.raises(ConfigError, match="damaged"):
        Result.from_dict(document)


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"schema": 1}'])
def test_texts_that_are_no_result(text: str) -> None:
    with pytest.raises(ConfigError, match=r"mine\.json"):
        Result.from_json(text, "mine.json")


def test_load(result_file: Path, tmp_path: Path) -> None:
    assert Result.load(result_file).verdict == "VALID"
    with pytest.raises(ConfigError, match="cannot be read"):
        Result.load(tmp_path / "missing.json")


def test_to_pandas(result_document: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=rows.extend))
    Result.from_dict(result_document()).to_pandas()
    assert rows[0]["latency_ns.p99"] == 60_000
    assert rows[0]["model.latency_ns.p99"] == 59_500
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        Result.from_dict(result_document()).to_pandas()


def test_to_polars(result_document: Document) -> None:
    polars = pytest.importorskip("polars")
    frames = [Result.from_dict(result_document(iops=rate)).to_polars() for rate in (1e6, 2e6)]
    frame = polars.concat(frames, how="diagonal_relaxed")
    assert frame["iops"].to_list() == [1e6, 2e6]
    assert frame["latency_ns.p99"].to_list() == [60_000.0] * 2
    assert frame["options.queues"].to_list() == [4, 4]
    assert "latency_cdf" not in frame.columns


def test_repr_says_that_nothing_was_verified(result_document: Document) -> None:
    assert "NOT VERIFIED" in repr(Result.from_dict(result_document(verified=0, not_verified="nothing was read")))
    assert "NOT VERIFIED" not in repr(Result.from_dict(result_document()))
