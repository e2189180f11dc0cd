"""What flashmob calibrate reads: tables and fio's JSON, right ones and wrong ones; which points are held out."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from flashmob import ConfigError
from flashmob.calibration.points import Figures, Load, Point, held_out, joined
from flashmob.calibration.sources import Filter, read_sources
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HEADER = "engine,state,rw,bs_bytes,iodepth,numjobs,iops,bw_MBps,lat_mean_us,lat_p50_us,lat_p99_us\n"


def table(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "drive.csv"
    path.write_text(header + "".join(f"{row}\n" for row in rows))
    return path


def test_a_row_is_a_point(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "spdk,fresh,randread,4096,8,2,150000,,106.5,90,200",
        "spdk,steady,randwrite,4096,1,1,,409.6,,,",
        "spdk,fresh,randrw:70r:write,8192,4,1,1000,,10,,",
    )
    read, write, mixed = read_sources([path]).points
    assert read == Point(Load("randread", 4096, 8, 2, 1.0), "read", Figures(150_000, 106_500, 90_000, 200_000))
    assert write.load.is_steady
    assert write.measured == Figures(100_000)
    assert mixed.load.read_share == 0.7
    assert mixed.direction == "write"


def test_what_is_no_point_is_counted_by_its_reason(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "spdk,,randread,4096,1,1,10,,,,",
        "spdk,,append,4096,1,1,10,,,,",
        "spdk,,randread,4096,peak,1,10,,,,",
        "spdk,,randread,4096,1,1,,,,50,60",
        "spdk,,randread,100,1,1,10,,,,",
        "spdk,,randread,4096,65536,1,10,,,,",
        "libaio,,randread,4096,1,1,10,,,,",
    )
    found = read_sources([path], [Filter.parse("engine=spdk", keep=True)])
    assert len(found.points) == 1
    assert found.left_out == {
        "rw append cannot be run here": 1,
        "iodepth is not a whole number": 1,
        "neither a rate nor a mean latency": 1,
        "requests that are no whole blocks": 1,
        "more in flight than 65,536": 1,
        "left out by --only or --without": 1,
    }


@pytest.mark.parametrize(
    ("rows", "header", "says"),
    [
        (["1,2"], "a,b\n", "has no column rw"),
        (["spdk,,randread,4096,1,1,fast,,,,"], HEADER, "iops of line 2 of"),
        (["spdk,,randread,4096,1,1,-3,,,,"], HEADER, "iops of line 2 of .* is -3"),
        (["spdk,,randread,4096,1,1,nan,,,,"], HEADER, "at least 0"),
        (["spdk,randread"], HEADER, "line 2 of .* has fewer values"),
        (["spdk,,randread,4096,1,1,1,,,,,,,,"], HEADER, "line 2 of .* has more values"),
        ([], HEADER, "has no column rw"),
        (["spdk,,append,4096,1,1,1,,,,"], HEADER, "nothing to calibrate with"),
    ],
)
def test_wrong_tables_are_refused_in_one_sentence(tmp_path: Path, rows: list[str], header: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_sources([table(tmp_path, *rows, header=header)])


def test_a_column_that_is_not_there_cannot_be_asked_for(tmp_path: Path) -> None:
    path = table(tmp_path, "spdk,,randread,4096,1,1,10,,,,")
    with pytest.raises(ConfigError, match="has no column motor; it has engine"):
        read_sources([path], [Filter.parse("motor=spdk", keep=True)])
    with pytest.raises(ConfigError, match="--without spdk is not possible; write COLUMN=TEXT"):
        Filter.parse("spdk", keep=False)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_sources([tmp_path / "gone.csv"])
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_sources([tmp_path])
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00rw")
    with pytest.raises(ConfigError, match="is not text"):
        read_sources([tmp_path / "noise"])


def fio(folder: Path, *jobs: dict[str, Any], **options: str) -> Path:
    path = folder / "fio.json"
    path.write_text(json.dumps({"global options": options, "jobs": list(jobs)}))
    return path


def job(direction: str = "read", **options: str) -> dict[str, Any]:
    figures = {
        "total_ios": 100,
        "iops": 1000.0,
        "lat_ns": {"mean": 51_000.0},
        "clat_ns": {"percentile": {"50.000000": 50_000, "99.000000": 60_000}},
    }
    return {"job options": options, direction: figures}


def test_fio_json(tmp_path: Path) -> None:
    path = fio(
        tmp_path,
        job(rw="randread", iodepth="4"),
        job("write", rw="randrw", rwmixread="30", bs="16k", numjobs="2", group_reporting=""),
        job(rw="randread", rate_iops="100"),
        job(rw="trim"),
        bs="4k",
    )
    found = read_sources([path])
    first, second = found.points
    assert first == Point(Load("randread", 4096, 4, 1, 1.0), "read", Figures(1000, 51_000, 50_000, 60_000))
    assert second.load == Load("randrw", 16384, 1, 2, 0.3)
    assert second.direction == "write"
    assert found.left_out == {"its rate was limited": 1, "rw trim cannot be run here": 1}


def test_fio_reports_each_job_where_it_was_not_told_to_group_them(tmp_path: Path) -> None:
    entries = [job(rw="randread", numjobs="4") | {"jobname": "j", "groupid": 0} for _ in range(4)]
    points = read_sources([fio(tmp_path, *entries)]).points
    assert [point.measured.iops for point in points] == [4000] * 4


@pytest.mark.parametrize("shared", [{}, {"group_reporting": ""}])
def test_fio_has_one_entry_of_jobs_that_are_reported_together(tmp_path: Path, shared: dict[str, str]) -> None:
    one, other = job(rw="randread", numjobs="4"), job(rw="randread", numjobs="4", iodepth="8")
    points = read_sources([fio(tmp_path, one, other, **shared)]).points
    assert [point.measured.iops for point in points] == [1000] * 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no JSON"),
        ("{}", "has no jobs"),
        ('{"jobs": [1]}', "job 0 of .* is not an object"),
        ('{"jobs": [{"read": {"total_ios": 1, "iops": "x"}}]}', "iops of job 0"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_wrong_json_is_refused_in_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "fio.json").write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_sources([tmp_path / "fio.json"])


@given(st.text(alphabet=st.sampled_from('{}[]",:.\n0123456789eErw_randmixbsjoblty-')))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    for content in (text, HEADER + text, '{"jobs": [{"read": ' + text):
        (tmp_path / "any").write_text(content)
        with suppress(ConfigError):
            assert read_sources([tmp_path / "any"]).points


def test_rows_that_repeat_a_load_are_one_point_of_their_medians() -> None:
    load = Load("randread", 4096, 1, 1, 1.0)
    points = [
        Point(load, "read", Figures(iops, mean_ns=latency)) for iops, latency in ((10, None), (30, 5.0), (20, 7.0))
    ]
    (one,) = joined(points)
    assert one.measured == Figures(20, mean_ns=6.0)
    assert one.runs == 3


def test_what_is_held_out_follows_from_the_seed_and_leaves_the_ends() -> None:
    points = [Point(Load("randread", 4096, 1 << k, 1, 1.0), "read", Figures(k + 1.0)) for k in range(10)]
    fitted, held = held_out(points, 0.3, 1)
    assert len(held) == 3
    assert {point.key for point in fitted} | {point.key for point in held} == {point.key for point in points}
    assert points[0] in fitted
    assert points[-1] in fitted
    assert held_out(points[::-1], 0.3, 1)[1] == held
    assert any(held_out(points, 0.3, seed)[1] != held for seed in range(2, 6))
    assert held_out(points, 0, 1) == (points, [])
    assert held_out(points[:2], 0.5, 1) == (points[:2], [])
