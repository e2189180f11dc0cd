"""Identify data as text."""

from __future__ import annotations

import struct

import pytest
from flashmob import identify


def test_controller() -> None:
    data = bytearray(4096)
    struct.pack_into("<HH", data, 0, 0x1D1D, 0x1D1E)
    data[4:24] = b"SERIAL".ljust(20)
    data[24:64] = b"a model".ljust(40)
    data[64:72] = b"1.0".ljust(8)
    data[73:76] = bytes((0x56, 0x34, 0x12))
    data[77] = 8
    struct.pack_into("<I", data, 80, 0x20000)
    struct.pack_into("<QQ", data, 280, 7, 1)
    data[512] = 0x66
    struct.pack_into("<I", data, 516, 256)
    data[768:800] = b"nqn.2014-08.org.nvmexpress:x".ljust(32, b"\0")
    struct.pack_into("<HBBII", data, 2048, 2500, 0, 0, 10, 20)
    fields = identify.IdentifyController(bytes(data)).texts()
    expected = {
        "vid": "0x1d1d",
        "ssvid": "0x1d1e",
        "sn": "SERIAL",
        "mn": "a model",
        "fr": "1.0",
        "ieee": "123456",
        "mdts": "8",
        "ver": "0x20000",
        "tnvmcap": str((1 << 64) + 7),
        "sqes": "0x66",
        "nn": "256",
        "subnqn": "nqn.2014-08.org.nvmexpress:x",
        "ps    0": "mp:25.00W operational enlat:10 exlat:20 rrt:0 rrl:0 rwt:0 rwl:0",
    }
    assert {name: fields[name] for name in expected} == expected
    assert "vid" in identify.lines(fields)[0]
    assert len({line.index(" : ") for line in identify.lines(fields)}) == 1


def test_namespace() -> None:
    data = bytearray(4096)
    struct.pack_into("<QQQ", data, 0, 0x1000, 0x1000, 0x10)
    data[25] = 1
    data[26] = 1
    struct.pack_into("<HBB", data, 128, 0, 9, 2)
    struct.pack_into("<HBB", data, 132, 0, 12, 0)
    data[104:120] = bytes(range(16))
    fields = identify.IdentifyNamespace(bytes(data)).texts()
    assert fields["nsze"] == "0x1000"
    assert fields["nuse"] == "0x10"
    assert fields["nguid"] == "000102030405060708090a0b0c0d0e0f"
    assert fields["lbaf  0"] == "ms:0   lbads:9  rp:0x2"
    assert fields["lbaf  1"] == "ms:0   lbads:12 rp:0x0 (in use)"
    assert "lbaf  2" not in fields


def test_short_data_is_refused() -> None:
    with pytest.raises(ValueError, match="100 bytes"):
        identify.IdentifyController(bytes(100)).texts()


def test_any_bytes_are_printed() -> None:
    for byte in (0x00, 0x7F, 0xFF):
        data = bytes([byte]) * 4096
        assert identify.lines(identify.IdentifyController(data).texts())
        assert identify.lines(identify.IdentifyNamespace(data).texts())
