"""What a served SSD's state says of its device and its hosts (flashmob/served.py), wherever that is shown."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from flashmob import ConfigError
from flashmob.live import View, plain_line
from flashmob.metrics import prometheus_text, stats_record
from flashmob.served import list_lines, of_settings, summary, view_of
from test_live import NQN, host, rates, state, stats, text_of


def test_a_served_image_that_is_gone_is_said_in_a_sentence(tmp_path: Path) -> None:
    image = tmp_path / "gone.img"
    namespaces = [{"size_bytes": 0, "media": f"file:{image}"}]
    served = state() | {"name": "a", "pid": 1, "seen_s": 0.0, "settings": {"subsystem": {"namespaces": namespaces}}}
    with pytest.raises(ConfigError, match=f"^a serves {image}, which cannot be looked at: No such file or directory$"):
        of_settings(served)


def test_rates_of_hosts_and_of_those_that_left_add_up() -> None:
    """In the view, in metrics and in the JSON log, from the same figures."""
    left = SimpleNamespace(count=2, **rates(70, 40, 20))
    all_rates = rates(1570.5, 1040, 520.5)
    shown = stats(left=left, **all_rates)
    text = text_of(View("a", "x", (), shown), 200)
    rate, host_line, left_name, left_line = (text.splitlines()[line] for line in (1, -3, -2, -1))
    for words in ("1.571 kIOPS", "reads 1.040 kIOPS", "writes 520.5 IOPS"):
        assert words in rate
    assert all(words in host_line for words in ("1.500 kIOPS", "reads 1.000 kIOPS", "writes 500.5 IOPS"))
    assert "2 that left in the last 1.00 s" in left_name
    assert all(words in left_line for words in ("70.00 IOPS", "reads 40.00 IOPS", "writes 20.00 IOPS"))
    record = json.loads(json.dumps(stats_record(shown)))
    samples = dict(line.rsplit(" ", 1) for line in prometheus_text({"a": shown}).splitlines() if line[0] != "#")
    for key, metric in (
        ("iops", "iops"),
        ("read_iops", "read_iops"),
        ("write_iops", "write_iops"),
        ("read_bytes_per_s", "read_bytes_per_second"),
        ("written_bytes_per_s", "written_bytes_per_second"),
    ):
        assert record[key] == record["left"][key] + sum(host[key] for host in record["hosts"])
        labels = f'{{ssd="a",door="nvme-tcp",host="{NQN}",controller="1"}}'
        parts = (f'flashmob_left_{metric}{{ssd="a"}}', f"flashmob_host_{metric}{labels}")
        assert float(samples[f'flashmob_{metric}{{ssd="a"}}']) == sum(float(samples[part]) for part in parts)


def test_views_of_older_servers() -> None:
    """Which told neither what those did that left, nor reads and writes of the whole SSD."""
    old = stats()
    del old.left, old.read_iops, old.write_iops, old.hosts[0].iops
    assert "reads 1.000 kIOPS" in text_of(View("a", "x", (), old), 200)


def test_one_queue_is_one() -> None:
    text = text_of(View("a", "x", (), stats(hosts=[host(queues=1), host(queues=2)])), 200)
    assert "1 queue " in text
    assert "2 queues" in text


def test_a_list_says_who_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    known = state() | {"name": "a", "pid": 7, "written_s": time.time()}
    assert summary(known)["answers"]
    assert "not answering" not in "".join(line.plain for line in list_lines([known], 80))
    monkeypatch.setattr("flashmob.served.is_stopped", lambda state: state["pid"] == 7)
    heading, row, why, *_ = (line.plain for line in list_lines([known], 80))
    assert "not answering" in row
    assert "VALID" not in row
    assert "IOPS" not in row + heading
    assert why == "  its process (7) is stopped; kill -CONT 7 lets it go on"
    assert not summary(known)["answers"]
    assert summary(known)["iops"] is None
    for said in (plain_line(view_of(known)), text_of(view_of(known), 200)):
        assert "not answering: its process (7)" in said
        assert "IOPS" not in said
        assert "latency" not in said
        assert "VALID" in said
