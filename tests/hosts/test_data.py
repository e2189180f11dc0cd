"""Data written through the kernel comes back as it was: fio's checksums, file systems, a real tree of files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from guest import Guest

TREE = "usr/sbin usr/bin usr/lib lib/modules"
"""The guest's own programs and libraries, about 70 MB."""


def fio(guest: Guest, arguments: str, limit: float = 180) -> dict[str, Any]:
    """Runs one fio job on the namespace and returns its part of the result, which has no errors."""
    said = guest.run(f"fio --name=job --filename=$N --direct=1 --output-format=json {arguments}", limit).output
    job: dict[str, Any] = json.loads(said[said.index("{") :])["jobs"][0]
    assert job["error"] == 0
    return job


@pytest.mark.parametrize("engine", ["io_uring", "libaio"])
@pytest.mark.parametrize(
    "blocks", ["--bs=4k", "--bsrange=512-256k --blockalign=512", "--bs=1m"], ids=["4k", "mixed", "1m"]
)
def test_fio_verifies(guest: Guest, engine: str, blocks: str) -> None:
    """A mix of writes and reads at depth 32; fio then reads all that it wrote and checks CRC-32C of every block."""
    size = 12 << 20
    job = fio(
        guest,
        f"--ioengine={engine} --iodepth=32 --rw=randwrite {blocks} --size={size} --offset=64m "
        "--verify=crc32c --verify_fatal=1 --do_verify=1",
    )
    assert job["write"]["io_bytes"] == size
    assert job["read"]["io_bytes"] == size


def test_fio_mixes_reads_and_writes_on_two_queues(guest: Guest) -> None:
    job = fio(
        guest,
        "--ioengine=io_uring --iodepth=32 --rw=randrw --bssplit=512/20:4k/50:64k/30 --size=24m --offset=128m "
        "--numjobs=2 --offset_increment=64m --group_reporting --verify=crc32c --verify_fatal=1 --verify_backlog=64",
    )
    assert job["read"]["total_ios"] > 0
    assert job["write"]["total_ios"] > 0


@pytest.mark.parametrize(
    ("make", "kind", "check"),
    [
        ("/usr/sbin/mkfs.xfs -q -f $N", "xfs", "/usr/sbin/xfs_repair -n $N"),
        ("/usr/sbin/mke2fs -q -t ext4 -F $N", "ext4", "/usr/sbin/e2fsck -f -n $N"),
    ],
    ids=["xfs", "ext4"],
)
def test_file_system_keeps_a_tree(guest: Guest, make: str, kind: str, check: str) -> None:
    """A real tree is copied, unmounted, mounted again, compared file by file; then the file system checks itself."""
    guest.run(
        f"""
        modprobe xfs
        cd /
        [ -s /run/tree.sums ] || find {TREE} -type f -exec md5sum {{}} + | sort >/run/tree.sums
        {make}
        mount -t {kind} $N /mnt
        tar -c {TREE} | tar -x -C /mnt
        sync
        umount /mnt
        echo 3 >/proc/sys/vm/drop_caches
        mount -t {kind} $N /mnt
        cd /mnt
        find {TREE} -type f -exec md5sum {{}} + | sort >/run/copy.sums
        cd /
        cmp /run/tree.sums /run/copy.sums
        [ $(wc -l </run/copy.sums) -gt 50 ]
        rm -r /mnt/usr/sbin
        fstrim -v /mnt
        umount /mnt
        {check}
        """,
        120,
    )
