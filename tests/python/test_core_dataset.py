"""Data sets read past the kernel: file systems' images through emulated and served SSDs, byte for byte."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aged_trees import contents, make_tree, mounted, run, tool
from flashmob.dataset import FileDataset, FileReadError, Place, make_files
from flashmob.dataset.manifest import CHECKSUMS_NAME
from flashmob.dataset.readers import DriverReader
from flashmob.device import core_module
from flashmob.errors import ConfigError
from flashmob.extents import ExtentError
from test_core_serve import served
from typer.testing import CliRunner

needs_ext4 = pytest.mark.skipif(tool("mke2fs") is None or tool("debugfs") is None, reason="needs e2fsprogs")
needs_xfs = pytest.mark.skipif(tool("mkfs.xfs") is None, reason="needs xfsprogs")


def has_io_uring() -> bool:
    try:
        core_module().KernelFileReads(b"/", 1).close()
    except ConfigError:
        return False
    return True


def image_of(tree: Path, image: Path, size_bytes: int = 32 << 20, *options: str) -> Path:
    with image.open("wb") as file:
        file.truncate(size_bytes)
    run("mke2fs", "-q", *(options or ("-t", "ext4", "-b", "4096")), "-d", tree, image)
    return image


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "files"
    make_files(root, "images", files=60, size_bytes=40_000, seed=5)
    return root


@pytest.fixture
def image(folder: Path, tmp_path: Path) -> Path:
    return image_of(folder, tmp_path / "image")


def check_all(files: FileDataset, truth: dict[str, bytes]) -> None:
    assert files.manifest.problems == ()
    assert {entry.path for entry in files.manifest.entries} == set(truth)
    for sample in files:
        assert sample.data.tobytes() == truth[sample.path], sample.path


@needs_ext4
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-t", "ext4", "-b", "1024", "-O", "inline_data"), id="inline"),
        pytest.param(("-t", "ext4", "-b", "4096"), id="large-blocks"),
        pytest.param(("-t", "ext2", "-b", "1024", "-I", "128"), id="ext2"),
    ],
)
@pytest.mark.parametrize("backend", ["driver", "gpu"])
def test_files_of_all_shapes_are_read_byte_for_byte(backend: str, options: tuple[str, ...], tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    make_tree(tree, seed=1, names=30)
    image = image_of(tree, tmp_path / "image", 32 << 20, *options)
    if options[1] == "ext4":
        run("debugfs", "-w", "-f", "-", image, stdin="fallocate /files/of-70000 10 40\n")
    with FileDataset(image, backend=backend, seed=1, ahead_bytes=1 << 20) as files:
        check_all(files, contents(tree))


@needs_xfs
def test_an_xfs_image_is_read_byte_for_byte(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(320 << 20)
    run("mkfs.xfs", "-q", image)
    truth: dict[str, bytes] = {}
    with mounted(image, tmp_path / "mount") as root:
        if root is None:
            pytest.skip("this machine does not let us mount an image")
        make_tree(root, seed=2, names=50, hole_at_end=True)
        truth = contents(root)
    with FileDataset(image) as files:
        check_all(files, truth)


@needs_ext4
def test_the_order_is_the_same_by_every_back_end(folder: Path, image: Path) -> None:
    orders = []
    ways = [(folder, "posix"), (image, "driver"), (image, "gpu")] + [(folder, "io_uring")] * has_io_uring()
    for source, backend in ways:
        with FileDataset(source, backend=backend, seed=9, verify=True, rank=1, world=2) as files:
            orders.append([(sample.path, sample.data.tobytes()) for sample in files])
    assert len(orders[0]) == 30
    assert all(order == orders[0] for order in orders)


def test_errors_of_io_uring_are_those_of_its_files(folder: Path) -> None:
    if not has_io_uring():
        pytest.skip("this kernel or container gives no io_uring")
    with FileDataset(folder, backend="io_uring", on_error="yield", verify=True) as files:
        (folder / "class-004/image-0000004.bin").unlink()
        short = folder / "class-005/image-0000005.bin"
        short.write_bytes(short.read_bytes()[:100])
        wrong = sorted(sample.error for sample in files if sample.error is not None)
        assert wrong == [
            "/class-004/image-0000004.bin: No such file or directory",
            "/class-005/image-0000005.bin: it ends at byte 100; it has become shorter",
        ]
        # Left early: what is in flight ends, and the rest comes.
        iteration = iter(files)
        next(iteration)
        iteration.close()
        assert len(list(files)) == 59


@needs_ext4
def test_pieces_are_the_files_wherever_they_are_cut(folder: Path, image: Path) -> None:
    truth = contents(folder)
    for backend in ("driver", "gpu"):
        with FileDataset(image, backend=backend, piece_bytes=7001) as files:
            for sample in files:
                end = sample.offset + sample.data.nbytes
                assert sample.data.tobytes() == truth[sample.path][sample.offset : end]


@needs_ext4
def test_only_blocks_of_files_are_asked_for(folder: Path, image: Path) -> None:
    with FileDataset(image, pattern="*[0-9].bin") as files:
        list(files)
        assert isinstance(files._reader, DriverReader)
        counts = files._reader.counts()
        assert counts.file_bytes == files.manifest.size_bytes
        # A block of 512 bytes for each end of a file at most.
        assert 0 <= counts.device_bytes - counts.file_bytes < 60 * 512
        assert 60 <= counts.commands < 200


@needs_ext4
def test_the_image_is_not_written(image: Path) -> None:
    before = image.read_bytes()
    with FileDataset(image) as files:
        list(files)
    assert image.read_bytes() == before


@needs_ext4
def test_errors_of_the_device_are_those_of_its_files(image: Path, tmp_path: Path) -> None:
    profile = tmp_path / "faulty.toml"
    shown = subprocess.run(
        [sys.executable, "-m", "flashmob", "profiles", "show", "d7-ps1010", "--toml"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    profile.write_text('faults = ["error on=read every=20 times=2"]\n' + shown)
    with FileDataset(image, profile=str(profile), on_error="yield", verify=True) as files:
        wrong = [sample for sample in files if sample.error]
        assert len(wrong) == 2
        for sample in wrong:
            assert sample.error is not None
            assert sample.error.startswith(f"{sample.path}: the device fails a read of block ")
            assert "Unrecovered Read Error" in sample.error
    with (
        FileDataset(image, profile=str(profile)) as files,
        pytest.raises(FileReadError, match="Unrecovered Read Error"),
    ):
        list(files)


@needs_ext4
def test_damage_that_no_device_tells_of_is_found(image: Path, folder: Path) -> None:
    path = "/class-007/image-0000007.bin"
    with FileDataset(image) as files:
        core: Any = files._reader
        place = core._source.extents(path.encode(), 0, 1)[0].device_offset
    with image.open("r+b") as file:
        file.seek(place + 1000)
        byte = file.read(1)[0]
        file.seek(place + 1000)
        file.write(bytes([byte ^ 4]))
    for backend in ("driver", "gpu"):
        with (
            FileDataset(image, backend=backend, verify=True) as files,
            pytest.raises(FileReadError, match=f"{path}: its CRC-32"),
        ):
            list(files)


@needs_ext4
def test_served_ssds_are_read_through_their_doors(folder: Path, image: Path, tmp_path: Path) -> None:
    truth = contents(folder)
    del truth[f"/{CHECKSUMS_NAME}"]
    options = ("d7-ps1010", "--media", f"cow:{image}", "--vfio-user", str(tmp_path / "ssd"), "--tcp", "127.0.0.1:0")
    with served(tmp_path, *options) as (_process, doors):
        for target in doors.values():
            with FileDataset(target, verify=True, rank=0, world=2) as zero:
                # Two at once, each with a controller of its own.
                one = pickle.loads(pickle.dumps(zero)).part(1, 2)
                seen = [sample.path for pair in zip(zero, one, strict=False) for sample in pair]
                one.close()
                assert set(seen) <= set(truth)
            with FileDataset(target) as files:
                check_all(files, truth)


@needs_ext4
def test_a_server_that_goes_away_fails_what_is_read(image: Path, tmp_path: Path) -> None:
    options = ("d7-ps1010", "--media", f"cow:{image}", "--vfio-user", str(tmp_path / "ssd"))
    with served(tmp_path, *options) as (process, doors):
        (target,) = doors.values()
        with FileDataset(target, on_error="yield", ahead_bytes=1, timeout_s=5) as files:
            iteration = iter(files)
            assert next(iteration).error is None
            process.kill()
            process.wait()
            errors = [sample.error for sample in iteration]
            assert len(errors) == 59
            assert errors[-1] is not None
            assert "does not answer" in errors[-1]


@needs_ext4
def test_a_mounted_directory_is_read_from_the_device_below(folder: Path, tmp_path: Path) -> None:
    image = image_of(folder, tmp_path / "image")
    with mounted(image, tmp_path / "mount") as root:
        if root is None:
            pytest.skip("this machine does not let us mount an image")
        options = ("d7-ps1010", "--media", f"cow:{image}", "--vfio-user", str(tmp_path / "ssd"))
        with served(tmp_path, *options) as (_process, doors):
            (target,) = doors.values()
            with FileDataset(root, device=target, verify=True) as files:
                assert files.place.resolved() == "driver"
                truth = contents(folder)
                del truth[f"/{CHECKSUMS_NAME}"]
                check_all(files, truth)


@needs_ext4
def test_samples_are_any_librarys_arrays(image: Path) -> None:
    with FileDataset(image) as files:
        for sample in files:
            assert np.from_dlpack(sample).ctypes.data == sample.data.ctypes.data
            assert memoryview(sample.data).nbytes == sample.data.nbytes


@needs_ext4
@pytest.mark.parametrize("source", ["image", "door", "folder"])
def test_a_child_of_a_fork_reads_by_itself(source: str, folder: Path, image: Path, tmp_path: Path) -> None:
    options = ("d7-ps1010", "--media", f"cow:{image}", "--vfio-user", str(tmp_path / "ssd"))
    with served(tmp_path, *options) as (_process, doors):
        where = {"image": str(image), "door": next(iter(doors.values())), "folder": str(folder)}[source]
        backend = "io_uring" if source == "folder" and has_io_uring() else "auto"
        with FileDataset(where, backend=backend, verify=True, ahead_bytes=1 << 18) as files:
            iteration = iter(files)
            next(iteration)
            child = os.fork()
            if child == 0:
                # Nothing of pytest's may run here.
                try:
                    files.set_epoch(0)
                    os._exit(0 if len(list(files)) == 60 else 3)
                finally:
                    os._exit(4)
            assert os.waitpid(child, 0)[1] == 0
            assert len(list(iteration)) == 59
            assert len(list(files)) == 60


def test_sources_without_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(random.Random(1).randbytes(1 << 20))
    for backend in ("driver", "gpu"):
        with pytest.raises(ConfigError, match="neither an ext4 nor an XFS"):
            FileDataset(tmp_path / "noise", backend=backend)
    with pytest.raises(ExtentError, match="No such file"):
        FileDataset(tmp_path / "nothing")
    with pytest.raises(ConfigError):
        FileDataset("vfio-user:/nowhere/at/all")


# --- The command ---


def files_command(*arguments: str | Path) -> tuple[int, str]:
    from flashmob.cli import app

    done = CliRunner().invoke(app, ["files", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return 2, str(done.exception)
    return done.exit_code, done.output


@needs_ext4
def test_the_command_makes_verifies_and_measures(tmp_path: Path) -> None:
    root = tmp_path / "made"
    assert files_command("make", root, "--kind", "videos", "--files", "6", "--size", "300k")[0] == 0
    image = image_of(root, tmp_path / "image")
    for source, way in ((root, "posix"), (image, "driver")):
        code, text = files_command("verify", source)
        assert (code, f"by {way}: none wrong" in text) == (0, True), text
    result = tmp_path / "result.json"
    code, text = files_command(
        "bench", image, "--against", root, "--windows", "2", "--seconds", "0.1", "--json", result
    )
    assert code == 0, text
    document = json.loads(result.read_text())
    assert [way["backend"] for way in document["ways"]] == ["posix", "driver"]
    assert all(way["bw_bytes"]["min"] > 0 for way in document["ways"])
    damaged = next((root / "clips").iterdir())
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    code, text = files_command("verify", root)
    assert code == 1
    assert f"wrong: /clips/{damaged.name}: its CRC-32 is" in text
    shutil.rmtree(root / "clips")
    code, text = files_command("verify", root)
    assert code != 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("make", "FOLDER", "--kind", "sounds"), "kind = sounds"),
        (("make", "FOLDER", "--size", "much"), "--size much is not possible"),
        (("make", "FOLDER", "--size", "0"), "--size 0 is not possible"),
        (("bench", "FOLDER", "--seconds", "0"), "--seconds 0.0 is not possible"),
        (("bench", "FOLDER", "--backend", "fast"), "backend = fast"),
        (("verify", "FOLDER"), "holds no files"),
    ],
)
def test_the_command_names_what_is_not_possible(arguments: tuple[str, ...], text: str, tmp_path: Path) -> None:
    code, found = files_command(*(str(tmp_path) if word == "FOLDER" else word for word in arguments))
    assert code == 2
    assert text in found


def test_empty_files_are_measured(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    code, text = files_command("bench", tmp_path, "--windows", "1", "--seconds", "0.01")
    assert code == 0, text


def test_places_can_be_pickled() -> None:
    place = Place("image", depth=3)
    assert pickle.loads(pickle.dumps(place)) == place
