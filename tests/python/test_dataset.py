"""Data sets of files without a device: orders and shards, made-up files, read-ahead, resumption, what is refused."""

from __future__ import annotations

import json
import pickle
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flashmob.dataset import (
    Entry,
    FileDataset,
    FileReadError,
    Manifest,
    Place,
    epoch_order,
    make_files,
    shard,
)
from flashmob.dataset import readers as readers_module
from flashmob.dataset.manifest import CHECKSUMS_NAME, parse_checksums
from flashmob.dataset.windows import measure
from flashmob.errors import ConfigError
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty files of about 3000 bytes, an empty one, one of a byte."""
    root = tmp_path / "files"
    make_files(root, "images", files=40, size_bytes=3000, seed=5)
    return root


def content(root: Path) -> dict[str, bytes]:
    return {
        f"/{path.relative_to(root)}": path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != CHECKSUMS_NAME
    }


# --- Orders ---


def test_orders_are_what_they_were_written_down_to_be() -> None:
    # What runs resume from must be the same with every version and on every machine.
    assert epoch_order(10, 1, 0).tolist() == [int(one) for one in _slow_order(10, 1, 0)]
    assert epoch_order(1000, 2**40, 77).tolist() == _slow_order(1000, 2**40, 77)
    assert epoch_order(5, 9, 3, shuffle=False).tolist() == [0, 1, 2, 3, 4]
    assert epoch_order(0, 1, 1).tolist() == []


def _slow_order(count: int, seed: int, epoch: int) -> list[int]:
    """The same by whole numbers of Python's."""

    def mixed(word: int) -> int:
        word = (word + 0x9E3779B97F4A7C15) % 2**64
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        return word ^ (word >> 31)

    key = mixed(mixed(seed % 2**64) ^ epoch)
    return sorted(range(count), key=lambda number: mixed(number ^ key))


@given(st.integers(0, 300), st.integers(0, 2**64), st.integers(0, 1000))
def test_every_epoch_has_every_sample_once(count: int, seed: int, epoch: int) -> None:
    assert sorted(epoch_order(count, seed, epoch).tolist()) == list(range(count))


def test_orders_differ_by_seed_and_epoch() -> None:
    orders = {tuple(epoch_order(50, seed, epoch).tolist()) for seed in range(8) for epoch in range(8)}
    assert len(orders) == 64


def test_places_in_an_order_are_even() -> None:
    # The first place of 4000 epochs: each of ten samples about 400 times; a standard deviation is 19.
    firsts = Counter(int(epoch_order(10, 3, epoch)[0]) for epoch in range(4000))
    assert all(300 < firsts[sample] < 500 for sample in range(10))


@given(st.integers(0, 60), st.integers(1, 9), st.sampled_from(["uneven", "drop", "repeat"]))
def test_shards_are_all_of_the_order(count: int, world: int, remainder: Any) -> None:
    order = epoch_order(count, 1, 1)
    shards = [shard(order, rank, world, remainder).tolist() for rank in range(world)]
    found = Counter(sample for one in shards for sample in one)
    lengths = {len(one) for one in shards}
    if remainder == "uneven":
        assert found == Counter(range(count))
        assert max(lengths) - min(lengths) <= 1
    else:
        assert len(lengths) == 1
    if remainder == "drop":
        assert sum(found.values()) == count // world * world
        assert set(found.values()) <= {1}
    if remainder == "repeat":
        assert set(found) == set(range(count))


@pytest.mark.parametrize(("rank", "world", "text"), [(0, 0, "world = 0"), (2, 2, "rank = 2"), (-1, 2, "rank = -1")])
def test_ranks_that_are_not_there_are_refused(rank: int, world: int, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        shard(np.arange(4), rank, world)
    with pytest.raises(ConfigError, match="remainder = some"):
        shard(np.arange(4), 0, 1, "some")  # type: ignore[arg-type]


# --- Files and manifests ---


@pytest.mark.parametrize("kind", ["images", "videos", "huge"])
def test_made_files_are_the_same_by_seed(kind: str, tmp_path: Path) -> None:
    first = make_files(tmp_path / "a", kind, files=5, size_bytes=9_000_001 if kind == "huge" else 5000, seed=1)
    again = make_files(tmp_path / "b", kind, files=5, size_bytes=9_000_001 if kind == "huge" else 5000, seed=1)
    other = make_files(tmp_path / "c", kind, files=5, size_bytes=9_000_001 if kind == "huge" else 5000, seed=2)
    assert first == again
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert {one.crc32 for one in first}.isdisjoint({one.crc32 for one in other})
    assert len({one.crc32 for one in first}) == 5
    for entry in first:
        data = (tmp_path / "a" / entry.path.lstrip("/")).read_bytes()
        assert (len(data), zlib.crc32(data)) == (entry.size_bytes, entry.crc32)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"kind": "sounds"}, "kind = sounds"), ({"files": 0}, "files = 0"), ({"size_bytes": 0}, "size_bytes = 0")],
)
def test_what_cannot_be_made_is_refused(arguments: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=text):
        make_files(tmp_path / "new", **arguments)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ConfigError, match="holds something already"):
        make_files(tmp_path / "full", files=1)


def test_manifests_choose_sort_and_tell_what_differs() -> None:
    files = [("/b", 2), ("/a", 1), ("/x/c", 3), (f"/{CHECKSUMS_NAME}", 99)]
    found = Manifest.of(files, checksums={"/a": (1, 7), "/b": (5, 8), "/gone": (1, 1)})
    assert found.entries == (Entry("/a", 1, 7), Entry("/b", 2, 8), Entry("/x/c", 3))
    assert found.size_bytes == 6
    assert len(found.problems) == 2
    assert "/b: has 2 bytes, and 5" in found.problems[0]
    assert "/gone" in found.problems[1]
    assert [one.path for one in Manifest.of(files, pattern="/x/*").entries] == ["/x/c"]
    assert found.fingerprint == Manifest.of(reversed(files)).fingerprint
    assert found.fingerprint != Manifest.of([*files, ("/d", 0)]).fingerprint
    assert found.fingerprint != Manifest.of([("/a", 2), ("/b", 2), ("/x/c", 3)]).fingerprint


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"\xff", b'{"schema": "x", "version": 1}', b'{"schema": "flashmob-files", "version": 1}']
)
def test_lists_of_checksums_that_are_none_are_refused(text: bytes) -> None:
    with pytest.raises(ConfigError, match=r"list\.json: is no list of checksums"):
        parse_checksums(text, "list.json")


# --- Iteration ---


@pytest.mark.parametrize("ahead_bytes", [1, 7000, 1 << 20])
def test_every_sample_comes_whole_and_in_its_order(ahead_bytes: int, folder: Path) -> None:
    (folder / "empty").touch()
    (folder / "link").symlink_to("empty")
    truth = content(folder) | {"/link": b""}
    del truth["/link"]
    with FileDataset(folder, seed=3, ahead_bytes=ahead_bytes) as files:
        assert files.samples == len(files) == 41
        for epoch in range(2):
            samples = list(files)
            assert [one.index for one in samples] == epoch_order(41, 3, epoch).tolist()
            assert {one.path: one.data.tobytes() for one in samples} == truth
        assert files.epoch == 2
        assert [len(batch) for batch in files.batches(10)] == [10, 10, 10, 10, 1]
        assert [len(batch) for batch in files.batches(10, drop_last=True)] == [10, 10, 10, 10]


def test_ranks_and_workers_share_the_samples(folder: Path) -> None:
    with FileDataset(folder, seed=1, world=2) as zero, FileDataset(folder, seed=1, rank=1, world=2) as one:
        parts = [zero.part(0, 3), zero.part(1, 3), zero.part(2, 3), one]
        assert sum(len(part) for part in parts) == 40
        found = Counter(sample.path for part in parts for sample in part)
        assert set(found.values()) == {1}
        assert len(found) == 40
        iteration = iter(zero)
        next(iteration)
        assert len(list(zero.part(0, 1))) == 20
        iteration.close()
        with pytest.raises(ConfigError, match="index = 3"):
            zero.part(3, 3)
        for part in parts:
            part.close()


def test_pieces_are_the_files(folder: Path) -> None:
    truth = content(folder)
    with FileDataset(folder, piece_bytes=1000, seed=2) as files:
        found: dict[str, bytearray] = {path: bytearray(len(data)) for path, data in truth.items()}
        for sample in files:
            assert 0 < sample.data.nbytes <= 1000
            found[sample.path][sample.offset : sample.offset + sample.data.nbytes] = sample.data.tobytes()
        assert found == truth
        assert files.samples == sum(-(-len(data) // 1000) for data in truth.values())


def test_a_run_resumes_where_it_was(folder: Path) -> None:
    with FileDataset(folder, seed=4) as files:
        whole = [sample.path for sample in files] + [sample.path for sample in files]
    with FileDataset(folder, seed=4) as files:
        list(files)
        begun = [sample.path for sample, _ in zip(files, range(11), strict=False)]
        # zip() has taken a further one, which was yielded.
        state = json.loads(json.dumps(files.state_dict()))
    assert (state["epoch"], state["position"]) == (1, 12)
    with FileDataset(folder, seed=4) as files:
        files.load_state_dict(state)
        assert whole[40:] == begun + [whole[51]] + [sample.path for sample in files]
        assert files.state_dict()["position"] == 0
        files.set_epoch(0)
        assert [sample.path for sample in files] == whole[:40]


def test_states_of_others_are_refused(folder: Path) -> None:
    with FileDataset(folder, seed=4) as files, FileDataset(folder, seed=4, pattern="*1.bin") as fewer:
        with pytest.raises(ConfigError, match="of other files"):
            files.load_state_dict(fewer.state_dict())
        with pytest.raises(ConfigError, match="of another order"):
            files.load_state_dict(files.part(0, 2).state_dict())
        with pytest.raises(ConfigError, match="of another version"):
            files.load_state_dict(files.state_dict() | {"version": 99})


def test_one_iteration_at_a_time_and_one_that_is_left_goes_on(folder: Path) -> None:
    with FileDataset(folder) as files:
        iteration, second = iter(files), iter(files)
        first = next(iteration)
        with pytest.raises(RuntimeError, match="an iteration is under way"):
            iter(files)
        with pytest.raises(RuntimeError, match="an iteration is under way"):
            next(second)
        iteration.close()
        rest = list(files)
        assert len(rest) == 39
        assert first.path not in {sample.path for sample in rest}


def test_memory_that_is_held_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = held = 0

    def allocate(length: int) -> NDArray[np.uint8]:
        nonlocal most, held
        held += length
        most = max(most, held)
        return np.empty(length, np.uint8)

    with FileDataset(folder, ahead_bytes=20_000, allocate=allocate) as files:
        for sample in files:
            held -= sample.data.nbytes
    # The largest file has less than 5000 bytes; without reading ahead no two would be held.
    assert 10_000 < most <= 20_000


def test_a_damaged_file_is_found(folder: Path) -> None:
    path = "/class-003/image-0000003.bin"
    damaged = folder / path.lstrip("/")
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    with FileDataset(folder, verify=True) as files, pytest.raises(FileReadError, match=f"{path}: its CRC-32 is"):
        list(files)
    with FileDataset(folder, verify=True, on_error="yield") as files:
        wrong = [sample for sample in files if sample.error]
        assert [(sample.path, sample.data.nbytes) for sample in wrong] == [(path, 0)]
    with FileDataset(folder, on_error="yield") as files:
        # A file that has gone, and one that has become shorter, since they were listed.
        damaged.write_bytes(data[:100])
        (folder / "class-004/image-0000004.bin").unlink()
        wrong = sorted((sample for sample in files if sample.error), key=lambda sample: sample.path)
        assert [sample.error for sample in wrong] == [
            f"{path}: it ends at byte 100; it has become shorter",
            "/class-004/image-0000004.bin: No such file or directory",
        ]


def test_after_an_error_all_of_it_can_be_read_again(folder: Path) -> None:
    with FileDataset(folder) as files:
        gone = folder / "class-000" / "image-0000000.bin"
        data = gone.read_bytes()
        gone.unlink()
        with pytest.raises(FileReadError, match="No such file"):
            list(files)
        gone.write_bytes(data)
        files.set_epoch(0)
        assert len(list(files)) == 40


def test_it_can_be_pickled_while_it_reads(folder: Path) -> None:
    with FileDataset(folder, seed=1) as files:
        iteration = iter(files)
        first = next(iteration)
        with pickle.loads(pickle.dumps(files)) as copy:
            rest = [sample.path for sample in copy]
        assert [first.path, *rest] == [first.path, *(sample.path for sample in iteration)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ahead_bytes": 0}, "ahead_bytes = 0"),
        ({"piece_bytes": 0}, "piece_bytes = 0"),
        ({"on_error": "hide"}, "on_error = hide"),
        ({"verify": True, "piece_bytes": 10}, "leave piece_bytes out"),
        ({"rank": 1}, "rank = 1"),
        ({"backend": "aio"}, "backend = aio"),
        ({"backend": "driver"}, "is a directory; name the device"),
        ({"backend": "gpu"}, "is a directory; name the device"),
        ({"backend": "posix", "device": "vfio-user:/x"}, "device = vfio-user:/x is for backend driver"),
        ({"depth": 0}, "depth = 0"),
    ],
)
def test_options_that_are_not_possible_are_named(options: dict[str, Any], text: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=text):
        FileDataset(folder, **options)


def test_sources_and_back_ends_that_do_not_fit_are_named(folder: Path, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.touch()
    for place, text in (
        (Place(str(image), backend="posix"), "posix reads a directory"),
        (Place(str(image), device="vfio-user:/x"), "is for directories"),
        (Place("vfio-user:/x", backend="gpu"), "gpu reads images"),
    ):
        with pytest.raises(ConfigError, match=text):
            place.resolved()
    with pytest.raises(ConfigError, match="depth: the Place says where"):
        FileDataset(Place(str(folder)), depth=3)
    (folder / "more").touch()
    with pytest.raises(ConfigError, match="there is none of /more"):
        FileDataset(folder, verify=True)
    with FileDataset(folder) as files:
        for call, text in (
            (lambda: files.set_epoch(-1), "epoch = -1"),
            (lambda: files.batches(0), "size = 0"),
        ):
            with pytest.raises(ConfigError, match=text):
                call()


def test_windows_alternate_and_compare(folder: Path) -> None:
    order: list[tuple[str, int]] = []
    places = [("one", Place(str(folder), depth=1)), ("four", Place(str(folder), depth=4))]
    document = measure(
        places, windows=3, window_s=0.02, between=lambda name, window: order.append((name, window)), seed=1
    )
    assert order == [(name, window) for window in range(-1, 3) for name in ("one", "four")]
    assert [way["name"] for way in document["ways"]] == ["one", "four"]
    assert document["files"] == 40
    for way in document["ways"]:
        assert len(way["windows_bw_bytes"]) == 3
        assert 0 < way["bw_bytes"]["min"] <= way["bw_bytes"]["median"] <= way["bw_bytes"]["max"]
    assert document["ways"][0]["ratio"]["median"] == 1
    json.dumps(document)
    with pytest.raises(ConfigError, match="windows = 0"):
        measure(places, windows=0)
    (folder / "other").mkdir()
    with pytest.raises(ConfigError, match="holds no files"):
        measure([("none", Place(str(folder / "other")))], window_s=0.01)
    (folder / "other" / "file").write_bytes(b"x")
    with pytest.raises(ConfigError, match="holds other files than"):
        measure([*places, ("other", Place(str(folder / "other")))], window_s=0.01)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 5)])
def test_empty_files_have_a_rate(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    for number, size in enumerate(sizes):
        (tmp_path / str(number)).write_bytes(bytes(size))
    place = Place(str(tmp_path), backend="posix")
    document = measure([("one", place), ("other", place)], windows=2, window_s=0.01)
    for way in document["ways"]:
        assert way["files_per_s"]["min"] > 0
        assert way["ratio"]["min"] > 0
        assert sum(sizes) or way["cpu_s_per_gb"]["max"] == 0, "no bytes cost nothing for each of them"
    json.dumps(document, allow_nan=False)


def test_a_window_does_not_measure_how_the_read_ahead_begins(folder: Path) -> None:
    def allocate(length: int) -> NDArray[np.uint8]:
        time.sleep(0.02)
        return np.empty(length, np.uint8)

    # About ten files are begun before the first one comes, which takes as long as the window.
    options = {"windows": 1, "window_s": 0.2, "ahead_bytes": 30_000, "allocate": allocate}
    document = measure([("slow", Place(str(folder)))], **options)
    assert 15 < document["ways"][0]["files_per_s"]["median"] < 51


def test_the_back_ends_are_those_that_the_documentation_lists() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "dataset.md").read_text(encoding="utf-8")
    for backend in readers_module.BACKENDS:
        assert f"`{backend}`" in page
