"""nvme-cli, as an administrator uses it, through the kernel's driver."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doors import Door
from guest import Guest

BLOCKS = 1 << 21
"""Of 512 bytes, in a namespace of 1 GiB."""


def answer(guest: Guest, command: str) -> Any:
    """What an nvme-cli command says as JSON."""
    return json.loads(guest.run(f"{command} -o json").output)


def test_list_shows_the_ssd(guest: Guest, door: Door) -> None:
    listed = guest.run("nvme list").output
    assert "/dev/nvme" in listed
    assert "1.07" in listed, "GB"
    if door.ours:
        assert "flashmob" in listed


def test_identify_controller(guest: Guest, door: Door) -> None:
    controller = answer(guest, "nvme id-ctrl $C")
    assert controller["nn"] >= 1
    assert controller["subnqn"].startswith("nqn.")
    if door.ours:
        assert "flashmob" in controller["mn"]
        assert controller["oncs"] & 0xF == 0xF, "Compare, Write Uncorrectable, Dataset Management, Write Zeroes"
        assert controller["sqes"] == 0x66
        assert controller["cqes"] == 0x44
        assert controller["ver"] >= 0x20000


def test_identify_namespace(guest: Guest) -> None:
    namespace = answer(guest, "nvme id-ns $N")
    assert namespace["nsze"] == namespace["ncap"] == BLOCKS
    assert namespace["lbafs"][namespace["flbas"] & 0xF]["ds"] == 9
    assert guest.run("blockdev --getsz $N").output.strip() == str(BLOCKS)
    assert "0x1" in guest.run("nvme list-ns $C").output


def test_identify_descriptors(guest: Guest, door: Door) -> None:
    described = guest.run("nvme ns-descs $N").output
    assert not door.ours or "uuid" in described or "eui64" in described or "nguid" in described


def test_smart_log_counts(guest: Guest) -> None:
    before = answer(guest, "nvme smart-log $C")
    guest.run("dd if=$N of=/dev/null bs=128k count=100 iflag=direct")
    after = answer(guest, "nvme smart-log $C")
    assert before["critical_warning"] == after["critical_warning"] == 0
    assert after["host_read_commands"] >= before["host_read_commands"] + 100
    assert after["data_units_read"] > before["data_units_read"]


@pytest.mark.needs("temperature")
def test_smart_log_has_a_temperature(guest: Guest) -> None:
    assert 273 < answer(guest, "nvme smart-log $C")["temperature"] < 373


@pytest.mark.needs("error-log")
def test_error_log_names_the_failed_command(guest: Guest, door: Door) -> None:
    refused = guest.run(f"nvme read $N -s {BLOCKS} -c 0 -z 512 -d /dev/null", check=False)
    assert refused.status != 0
    assert "LBA" in refused.output, "the address is beyond the end"
    log = answer(guest, "nvme error-log $C -e 4")
    if door.ours:
        assert len(log["errors"]) == 4
        newest = log["errors"][0]
        assert newest["error_count"] > 0
        assert newest["lba"] == BLOCKS
        assert newest["nsid"] == 1
        assert newest["status_field"] & 0xFF == 0x80, "LBA Out of Range"


def test_get_features(guest: Guest, door: Door) -> None:
    for feature, name in ((0x04, "temperature threshold"), (0x07, "number of queues"), (0x0B, "async events")):
        said = guest.run(f"nvme get-feature $C -f {feature}", check=door.ours)
        assert "alue" in said.output or not door.ours, name
    if door.ours:
        # Every feature that the controller must have, decoded by nvme-cli.
        for feature in (0x01, 0x02, 0x05):
            guest.run(f"nvme get-feature $C -n 1 -f {feature} -H")


@pytest.mark.needs("fw-log")
def test_firmware_log(guest: Guest) -> None:
    assert "frs1" in guest.run("nvme fw-log $C").output


def test_write_read_compare(guest: Guest, door: Door) -> None:
    guest.run(
        """
        dd if=/dev/urandom of=/tmp/a bs=4096 count=8
        nvme write $N -s 1000 -c 63 -z 32768 -d /tmp/a
        nvme read $N -s 1000 -c 63 -z 32768 -d /tmp/b
        cmp /tmp/a /tmp/b
        """
    )
    if "compare" in door.cannot:
        pytest.skip(f"{door.name} has no compare")
    guest.run("nvme compare $N -s 1000 -c 63 -z 32768 -d /tmp/a")
    differs = guest.run("nvme compare $N -s 1001 -c 62 -z 32256 -d /tmp/a", check=False)
    assert differs.status != 0
    assert "compare" in differs.output.lower()


def test_flush(guest: Guest) -> None:
    guest.run("nvme flush $N -n 1")
    guest.run("dd if=/dev/zero of=$N bs=64k count=16 seek=4 conv=fsync")


def test_write_zeroes(guest: Guest) -> None:
    guest.run(
        """
        dd if=/dev/urandom of=$N bs=64k count=4 oflag=direct
        nvme write-zeroes $N -s 8 -c 255
        dd if=$N of=/tmp/z bs=4096 skip=1 count=32 iflag=direct
        cmp /tmp/z /dev/zero -n 131072
        ! cmp -s -n 4096 $N /dev/zero
        /usr/sbin/blkdiscard -z -o 0 -l 262144 $N
        cmp -n 262144 $N /dev/zero
        """
    )


def test_dataset_management(guest: Guest) -> None:
    guest.run(
        """
        dd if=/dev/urandom of=$N bs=64k count=16 oflag=direct
        cp /dev/null /tmp/before; dd if=$N of=/tmp/before bs=64k count=16 iflag=direct
        nvme dsm $N -d -s 512 -b 256
        dd if=$N of=/tmp/z bs=64k skip=4 count=2 iflag=direct
        dd if=$N of=/tmp/rest bs=64k count=4 iflag=direct
        cmp -n 262144 /tmp/rest /tmp/before
        /usr/sbin/blkdiscard -o 0 -l 1048576 $N
        """
    )
    if answer(guest, "nvme id-ns $N")["dlfeat"] & 7 == 1:
        guest.run("cmp -n 131072 /tmp/z /dev/zero && cmp -n 1048576 $N /dev/zero")


@pytest.mark.needs("format")
def test_format_changes_blocks_and_erases(guest: Guest) -> None:
    formats = answer(guest, "nvme id-ns $N")["lbafs"]
    large = next(index for index, entry in enumerate(formats) if entry["ds"] == 12 and entry.get("ms", 0) == 0)
    small = next(index for index, entry in enumerate(formats) if entry["ds"] == 9 and entry.get("ms", 0) == 0)
    guest.run("dd if=/dev/urandom of=$N bs=64k count=16 oflag=direct")
    guest.run(f"nvme format $C -n 1 --lbaf={large} --ses=1 --force")
    guest.run("for try in $(seq 50); do [ $(blockdev --getss $N) = 4096 ] && exit 0; sleep 0.1; done; exit 1")
    guest.run("cmp -n 1048576 $N /dev/zero")
    guest.run("dd if=/dev/urandom of=/tmp/a bs=4096 count=8; dd if=/tmp/a of=$N bs=4096 oflag=direct seek=3")
    guest.run("dd if=$N of=/tmp/b bs=4096 skip=3 count=8 iflag=direct; cmp /tmp/a /tmp/b")
    guest.run(f"nvme format $C -n 1 --lbaf={small} --force")
    guest.run("for try in $(seq 50); do [ $(blockdev --getss $N) = 512 ] && exit 0; sleep 0.1; done; exit 1")
    assert answer(guest, "nvme id-ns $N")["nsze"] == BLOCKS


def test_an_unknown_command_is_refused_and_nothing_else_happens(guest: Guest) -> None:
    for command in ("nvme admin-passthru $C --opcode=0xff", "nvme io-passthru $N --opcode=0xff --namespace-id=1"):
        refused = guest.run(command, check=False)
        assert refused.status != 0
        assert "opcode" in refused.output.lower()
    guest.run("dd if=$N of=/dev/null bs=64k count=4 iflag=direct")
