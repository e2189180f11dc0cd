"""flashmob extents: files byte for byte by their extents, and extents as FIEMAP, debugfs and xfs_db have them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from aged_trees import (
    age,
    contents,
    debugfs_extents,
    make_tree,
    mounted,
    run,
    tool,
    xfs_db_extents,
)
from flashmob.device import core_module
from flashmob.errors import ConfigError
from flashmob.extents import Extent, ExtentError, Extents, open_extents
from test_core_serve import served
from typer.testing import CliRunner

EXT4 = [
    pytest.param(("-t", "ext4", "-b", "1024", "-O", "inline_data"), id="inline"),
    pytest.param(("-t", "ext4", "-b", "4096", "-I", "1024", "-O", "inline_data,metadata_csum_seed"), id="large-inodes"),
    pytest.param(("-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit,uninit_bg"), id="no-checksums"),
    pytest.param(("-t", "ext4", "-b", "1024", "-g", "1024", "-O", "meta_bg,^resize_inode"), id="meta-groups"),
    pytest.param(("-t", "ext4", "-b", "2048", "-O", "bigalloc,sparse_super2"), id="clusters"),
    pytest.param(("-t", "ext3", "-b", "1024"), id="ext3"),
    pytest.param(("-t", "ext2", "-b", "4096", "-I", "128"), id="ext2"),
]

needs_ext4 = pytest.mark.skipif(tool("mke2fs") is None or tool("debugfs") is None, reason="needs e2fsprogs")
needs_xfs = pytest.mark.skipif(tool("mkfs.xfs") is None or tool("xfs_db") is None, reason="needs xfsprogs")


def new_image(path: Path, size_bytes: int) -> Path:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    make_tree(root, seed=1)
    return root


def placed(extents: list[Extent], block_bytes: int) -> list[tuple[int, int, int, bool]]:
    """Extents as the file systems' own tools show them: whole blocks, no holes."""
    return [
        (one.file_offset, one.device_offset, -(-one.bytes // block_bytes) * block_bytes, "unwritten" in one.flags)
        for one in extents
        if one.device_offset is not None
    ]


def within(
    shown: list[tuple[int, int, int, bool]], size_bytes: int, block_bytes: int
) -> list[tuple[int, int, int, bool]]:
    """What others show, without what lies beyond the file's end."""
    end = -(-size_bytes // block_bytes) * block_bytes
    return [(at, place, min(count, end - at), flag) for at, place, count, flag in shown if at < end]


def check_contents(source: Extents, truth: dict[str, bytes]) -> None:
    files = {file.path: file for file in source.files() if file.kind == "file"}
    assert source.problems() == []
    assert set(files) == set(truth)
    for path, data in truth.items():
        assert files[path].size_bytes == len(data)
        assert source.read(path) == data, path
        extents = source.extents(path)
        assert sum(one.bytes for one in extents) == len(data)
        middle = len(data) // 3
        part = source.extents(path, middle, 5000)
        assert sum(one.bytes for one in part) == min(5000, len(data) - middle)
        assert source.read(path, middle, 5000) == data[middle : middle + 5000]


@needs_ext4
@pytest.mark.parametrize("options", EXT4)
def test_ext4_images_are_read_byte_for_byte(options: tuple[str, ...], tree: Path, tmp_path: Path) -> None:
    image = new_image(tmp_path / "image", 32 << 20)
    run("mke2fs", "-q", *options, "-d", tree, image)
    with open_extents(image) as source:
        assert source.file_system == "ext4"
        found = {file.path for file in source.files()}
        assert found == {"/", "/lost+found"} | {f"/{path.relative_to(tree)}" for path in tree.rglob("*")}
        check_contents(source, contents(tree))
        assert source.look_up("to-file").path == "/files/of-4097"
        assert source.look_up("/many/.././to-root").path == "/files/of-61"
        with pytest.raises(ExtentError, match="/circle: is a link of a circle"):
            source.look_up("circle")
        with pytest.raises(ExtentError, match="/files: holds no nothing"):
            source.look_up("files/nothing")


@needs_ext4
def test_ext4_extents_are_those_that_debugfs_shows(tree: Path, tmp_path: Path) -> None:
    image = new_image(tmp_path / "image", 32 << 20)
    run("mke2fs", "-q", "-t", "ext4", "-b", "1024", "-d", tree, image)
    # Holes and what is only reserved, made without a mount.
    run("debugfs", "-w", "-f", "-", image, stdin="punch /files/sparse 100 180\nfallocate /files/of-70000 10 200\n")
    with open_extents(image) as source:
        files = [file for file in source.files() if file.kind == "file" and file.size_bytes]
        shown = debugfs_extents(image, sorted({file.inode for file in files}), 1024)
        for file in files:
            expected = within(shown[file.inode], file.size_bytes, 1024)
            assert placed(source.extents(file.path), 1024) == expected, file.path


@needs_ext4
def test_an_aged_ext4_is_the_same_mounted_and_unmounted(tmp_path: Path) -> None:
    compare_aged(tmp_path, ["mke2fs", "-q", "-t", "ext4", "-b", "4096"], clones=False, show=debugfs_extents)


@needs_ext4
def test_ext4_with_an_inode_that_is_inline_is_the_same_mounted_and_unmounted(tmp_path: Path) -> None:
    compare_aged(tmp_path, ["mke2fs", "-q", "-t", "ext4", "-b", "1024", "-O", "inline_data"], clones=False, show=None)


@needs_xfs
@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="defaults"),
        pytest.param(("-b", "size=1024", "-n", "size=8192", "-i", "size=512"), id="small-blocks"),
        pytest.param(("-m", "reflink=0,rmapbt=0", "-n", "ftype=1", "-d", "agcount=2"), id="no-reflink"),
        pytest.param(("-i", "nrext64=1,size=1024"), id="big-counts"),
        # Its log has a stripe unit, which the last record fills.
        pytest.param(("-s", "size=4096"), id="large-sectors"),
    ],
)
def test_an_aged_xfs_is_the_same_mounted_and_unmounted(options: tuple[str, ...], tmp_path: Path) -> None:
    show = (lambda image, inodes, _block: xfs_db_extents(image, inodes)) if not options else None
    compare_aged(tmp_path, ["mkfs.xfs", "-q", *options], clones="reflink=0,rmapbt=0" not in options, show=show)


def compare_aged(
    tmp_path: Path,
    make: list[str],
    *,
    clones: bool,
    show: Callable[[Path, list[int], int], dict[int, list[tuple[int, int, int, bool]]]] | None,
) -> None:
    image = new_image(tmp_path / "image", 320 << 20)
    run(*make, image)
    with mounted(image, tmp_path / "mount") as root:
        if root is None:
            pytest.skip("this machine lets nobody mount an image")
        make_tree(root, seed=2, names=2500, hole_at_end=True)
        age(root, seed=3, clones=clones)
        truth = contents(root)
        with open_extents(root) as source:
            live = {path: source.extents(path) for path in truth}
            for path in list(truth)[::20]:
                if not any("inline" in one.flags for one in live[path]):
                    assert source.read(path) == truth[path]
            assert {file.path for file in source.files() if file.kind == "file"} == set(truth)
        with pytest.raises(ExtentError, match="is mounted, or was not unmounted"):
            open_extents(copy_of(image, tmp_path))
    with open_extents(image) as source:
        check_contents(source, truth)
        flags = set()
        for path in truth:
            extents = source.extents(path)
            flags |= {flag for one in extents for flag in one.flags}
            # Of what is inline the kernel tells of one place, though there may be two.
            if not any("inline" in one.flags for one in extents):
                assert extents == live[path], path
        assert {"hole", "unwritten"} <= flags
        assert ("shared" in flags) == clones
        if show is not None:
            files = [file for file in source.files() if file.path.startswith("/aged/")]
            files = [file for file in files if not any("shared" in one.flags for one in source.extents(file.path))]
            shown = show(image, [file.inode for file in files], 4096)
            for file in files:
                expected = within(shown.get(file.inode, []), file.size_bytes, 4096)
                assert placed(source.extents(file.path), 4096) == expected, file.path


def copy_of(image: Path, tmp_path: Path) -> Path:
    """As it is on the disk now, holes kept."""
    run("sync")
    copy = tmp_path / "copy"
    copy.unlink(missing_ok=True)
    shutil.copyfile(image, copy)
    return copy


@needs_xfs
@pytest.mark.parametrize("options", [(), ("-s", "size=4096"), ("-l", "su=256k")], ids=" ".join)
def test_an_xfs_that_a_prototype_filled_is_read_without_any_mount(options: tuple[str, ...], tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.write_bytes(os.urandom(123_457))
    names = "\n".join(f"  name-{number:05} ---644 0 0 {payload}" for number in range(60))
    (tmp_path / "proto").write_text(f"/\n1 1\nd--755 0 0\n d d--755 0 0\n{names}\n $\n l l--777 0 0 d/name-00007\n$\n")
    image = new_image(tmp_path / "image", 320 << 20)
    run("mkfs.xfs", "-q", *options, "-p", tmp_path / "proto", image)
    with open_extents(image) as source:
        check_contents(source, {f"/d/name-{number:05}": payload.read_bytes() for number in range(60)})
        assert source.look_up("l").path == "/d/name-00007"
        files = [file for file in source.files() if file.kind == "file"]
        shown = xfs_db_extents(image, [file.inode for file in files])
        for file in files:
            assert placed(source.extents(file.path), 4096) == shown[file.inode]


@needs_ext4
def test_what_cannot_be_trusted_is_refused_in_one_sentence(tree: Path, tmp_path: Path) -> None:
    image = new_image(tmp_path / "image", 16 << 20)
    run("mke2fs", "-q", "-t", "ext4", "-b", "1024", "-d", tree, image)
    with open_extents(image) as source:
        place = source.extents("files/of-70000")[0].device_offset
        root = source.look_up("/")
    assert place is not None
    run("debugfs", "-w", "-R", "feature needs_recovery", image)
    with pytest.raises(ExtentError, match=r"image: the ext4 journal holds changes .* unmount it, or let e2fsck"):
        open_extents(image)
    run("debugfs", "-w", "-R", "feature -needs_recovery", image)
    # A byte of an inode that nobody needs for reading: only its checksum says so.
    run("debugfs", "-w", "-R", f"set_inode_field <{root.inode}> checksum 0x12345678", image)
    with open_extents(image) as source:
        assert source.files() == []
        assert len(source.problems()) == 1
        assert "inode 2 at byte" in source.problems()[0]
        assert "has a wrong checksum" in source.problems()[0]
    with open_extents(image, verify_checksums=False) as source:
        assert source.read("files/of-70000") == (tree / "files/of-70000").read_bytes()
    os.truncate(image, 15 << 20)
    with pytest.raises(ExtentError, match="and the device ends at byte 15728640"):
        open_extents(image)


@needs_ext4
@pytest.mark.parametrize("options", [("-t", "ext2"), ("-t", "ext4", "-O", "^has_journal")], ids=" ".join)
def test_without_a_journal_the_state_tells_what_was_not_unmounted(options: tuple[str, ...], tmp_path: Path) -> None:
    image = new_image(tmp_path / "image", 16 << 20)
    run("mke2fs", "-q", *options, image)
    with open_extents(image) as source:
        assert source.problems() == []
    run("debugfs", "-w", "-R", "set_super_value state 0", image)
    with pytest.raises(ExtentError, match=r"image: the file system is mounted, or was not unmounted"):
        open_extents(image)


def test_what_holds_no_file_system_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExtentError, match="No such file or directory"):
        open_extents(tmp_path / "none")
    with pytest.raises(ExtentError, match=r"/dev/null: is no directory, image or block device"):
        open_extents("/dev/null")
    with pytest.raises(ExtentError, match="lies on a file system whose extents are no places"):
        open_extents("/proc/self")


@needs_ext4
def test_a_damaged_file_costs_nobody_the_others(tree: Path, tmp_path: Path) -> None:
    from flashmob.cli import app

    image = new_image(tmp_path / "image", 16 << 20)
    run("mke2fs", "-q", "-t", "ext4", "-b", "1024", "-d", tree, image)
    node = re.search(r"\(ETB0\):(\d+)", run("debugfs", "-R", "stat /files/sparse", image))
    assert node is not None
    with image.open("r+b") as file:
        file.seek(int(node[1]) * 1024 + 4)
        file.write(b"\xff\xff")
    runner = CliRunner()
    for arguments in (["--range", "0+1M"], ["/files/sparse", "/files/of-70000"]):
        shown = runner.invoke(app, ["extents", str(image), *arguments])
        assert shown.exit_code == 1, arguments
        assert "/files/of-70000" in shown.stdout
        assert "not read: " in shown.stderr
        assert "/files/sparse" in shown.stderr
    alone = runner.invoke(app, ["extents", str(image), "/files/sparse"])
    assert isinstance(alone.exception, ExtentError)
    below = runner.invoke(app, ["extents", str(image), "/files/of-70000", "--range", "-1+5"])
    assert "--range -1+5 is not possible: use 0 or more" in str(below.exception)


@needs_ext4
def test_the_command_prints_whole_names_and_json(tree: Path, tmp_path: Path) -> None:
    from flashmob.cli import app

    image = new_image(tmp_path / "image", 16 << 20)
    run("mke2fs", "-q", "-t", "ext4", "-b", "1024", "-d", tree, image)
    runner = CliRunner()
    listed = runner.invoke(app, ["extents", str(image)])
    assert listed.exit_code == 0, listed.output
    assert f" /files/{'n' * 255}\n" in listed.output
    shown = runner.invoke(app, ["extents", str(image), "/files/sparse", "--range", "1M+64k", "--json"])
    assert shown.exit_code == 0, shown.output
    [file] = json.loads(shown.stdout)["files"]
    assert file["path"] == "/files/sparse"
    assert file["extents"][0]["file_offset"] == 1 << 20
    assert sum(one["bytes"] for one in file["extents"]) == 65536
    assert {one["device_offset"] is None for one in file["extents"] if "hole" in one["flags"]} == {True}
    table = runner.invoke(app, ["extents", str(image), "files/sparse"])
    assert "hole" in table.output
    assert "file offset" in table.output
    wrong = runner.invoke(app, ["extents", str(image), "--range", "5"])
    assert "--range 5 is not possible: write OFFSET+BYTES" in str(wrong.exception)


@needs_ext4
def test_a_file_system_on_a_served_ssd_is_read_through_its_door(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    make_tree(tree, seed=4, names=20)
    image = new_image(tmp_path / "image", 16 << 20)
    run("mke2fs", "-q", "-t", "ext4", "-b", "1024", "-O", "inline_data", "-d", tree, image)
    with open_extents(image) as source:
        expected = {file: source.extents(file.path) for file in source.files() if file.kind == "file"}
    options = ("unlimited", "--size", "16M", "--media", f"file:{image}", "--vfio-user", ".")
    with served(tmp_path, *options) as (_process, doors), open_extents(doors["ssd0 vfio-user"]) as source:
        assert source.device == doors["ssd0 vfio-user"]
        check_contents(source, contents(tree))
        for file, extents in expected.items():
            assert source.extents(file.path) == extents
    with pytest.raises(ConfigError, match="is the server running"):
        open_extents(f"vfio-user:{tmp_path / 'none'}")


@needs_ext4
def test_an_ssd_that_has_not_answered_in_time_is_not_asked_again(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    make_tree(tree, seed=4, names=20)
    image = new_image(tmp_path / "image", 16 << 20)
    run("mke2fs", "-q", "-t", "ext4", "-b", "1024", "-d", tree, image)
    options = ("unlimited", "--size", "16M", "--media", f"file:{image}", "--vfio-user", ".")
    # The superblock and what follows it can be read. Of the rest one command is lost, and those after it are not.
    lost = ("--fault", "lose on=read lba=100-32767 times=1")
    with served(tmp_path, *options, *lost) as (_process, doors):
        target = os.fsencode(doors["ssd0 vfio-user"])
        source = core_module().ExtentSource.open(target, timeout_ns=200_000_000)
        found = []
        for _ in range(2):
            with pytest.raises(ExtentError, match="the device does not answer a read: ") as refused:
                source.look_up(b"/files/sparse")
            found.append(str(refused.value))
        assert found[0] == found[1]
        assert "200 ms" in found[0]
