"""Identify data structures as text, field by field, in the form that nvme-cli made familiar.

Layouts: NVMe Base 2.0c, 5.17.2.1 (controller) and NVM command set 1.0c, 4.1.5.1 (namespace).
"""

from __future__ import annotations

import struct
from typing import Final

IDENTIFY_BYTES: Final = 4096

# (name, offset in bytes, format). Formats: a struct code, with "x" in front where the value is a set of bits or an
# identifier and reads better in hexadecimal; "sN" for N bytes of text; "hN" for N bytes as hexadecimal digits.
_CONTROLLER: Final = (
    ("vid", 0, "xH"),
    ("ssvid", 2, "xH"),
    ("sn", 4, "s20"),
    ("mn", 24, "s40"),
    ("fr", 64, "s8"),
    ("rab", 72, "B"),
    ("ieee", 73, "r3"),
    ("cmic", 76, "xB"),
    ("mdts", 77, "B"),
    ("cntlid", 78, "xH"),
    ("ver", 80, "xI"),
    ("rtd3r", 84, "xI"),
    ("rtd3e", 88, "xI"),
    ("oaes", 92, "xI"),
    ("ctratt", 96, "xI"),
    ("rrls", 100, "xH"),
    ("cntrltype", 111, "B"),
    ("fguid", 112, "h16"),
    ("crdt1", 128, "H"),
    ("crdt2", 130, "H"),
    ("crdt3", 132, "H"),
    ("nvmsr", 253, "B"),
    ("vwci", 254, "B"),
    ("mec", 255, "B"),
    ("oacs", 256, "xH"),
    ("acl", 258, "B"),
    ("aerl", 259, "B"),
    ("frmw", 260, "xB"),
    ("lpa", 261, "xB"),
    ("elpe", 262, "B"),
    ("npss", 263, "B"),
    ("avscc", 264, "xB"),
    ("apsta", 265, "xB"),
    ("wctemp", 266, "H"),
    ("cctemp", 268, "H"),
    ("mtfa", 270, "H"),
    ("hmpre", 272, "I"),
    ("hmmin", 276, "I"),
    ("tnvmcap", 280, "Q"),
    ("unvmcap", 296, "Q"),
    ("rpmbs", 312, "xI"),
    ("edstt", 316, "H"),
    ("dsto", 318, "B"),
    ("fwug", 319, "B"),
    ("kas", 320, "H"),
    ("hctma", 322, "xH"),
    ("mntmt", 324, "H"),
    ("mxtmt", 326, "H"),
    ("sanicap", 328, "xI"),
    ("hmminds", 332, "I"),
    ("hmmaxd", 336, "H"),
    ("nsetidmax", 338, "H"),
    ("endgidmax", 340, "H"),
    ("anatt", 342, "B"),
    ("anacap", 343, "xB"),
    ("anagrpmax", 344, "I"),
    ("nanagrpid", 348, "I"),
    ("pels", 352, "I"),
    ("domainid", 356, "H"),
    ("megcap", 368, "Q"),
    ("sqes", 512, "xB"),
    ("cqes", 513, "xB"),
    ("maxcmd", 514, "H"),
    ("nn", 516, "I"),
    ("oncs", 520, "xH"),
    ("fuses", 522, "xH"),
    ("fna", 524, "xB"),
    ("vwc", 525, "xB"),
    ("awun", 526, "H"),
    ("awupf", 528, "H"),
    ("icsvscc", 530, "B"),
    ("nwpc", 531, "B"),
    ("acwu", 532, "H"),
    ("ocfs", 534, "xH"),
    ("sgls", 536, "xI"),
    ("mnan", 540, "I"),
    ("maxdna", 544, "Q"),
    ("maxcna", 560, "I"),
    ("subnqn", 768, "s256"),
    ("ioccsz", 1792, "I"),
    ("iorcsz", 1796, "I"),
    ("icdoff", 1800, "H"),
    ("fcatt", 1802, "B"),
    ("msdbd", 1803, "B"),
    ("ofcs", 1804, "H"),
)

_NAMESPACE: Final = (
    ("nsze", 0, "xQ"),
    ("ncap", 8, "xQ"),
    ("nuse", 16, "xQ"),
    ("nsfeat", 24, "xB"),
    ("nlbaf", 25, "B"),
    ("flbas", 26, "xB"),
    ("mc", 27, "xB"),
    ("dpc", 28, "xB"),
    ("dps", 29, "xB"),
    ("nmic", 30, "xB"),
    ("rescap", 31, "xB"),
    ("fpi", 32, "xB"),
    ("dlfeat", 33, "xB"),
    ("nawun", 34, "H"),
    ("nawupf", 36, "H"),
    ("nacwu", 38, "H"),
    ("nabsn", 40, "H"),
    ("nabo", 42, "H"),
    ("nabspf", 44, "H"),
    ("noiob", 46, "H"),
    ("nvmcap", 48, "Q"),
    ("npwg", 64, "H"),
    ("npwa", 66, "H"),
    ("npdg", 68, "H"),
    ("npda", 70, "H"),
    ("nows", 72, "H"),
    ("mssrl", 74, "H"),
    ("mcl", 76, "I"),
    ("msrc", 80, "B"),
    ("nulbaf", 82, "B"),
    ("anagrpid", 92, "I"),
    ("nsattr", 99, "B"),
    ("nvmsetid", 100, "H"),
    ("endgid", 102, "H"),
    ("nguid", 104, "h16"),
    ("eui64", 120, "h8"),
)

_POWER_STATES = 2048
_LBA_FORMATS = 128


def controller_fields(data: bytes) -> dict[str, str]:
    """Identify Controller (CNS 01h): field name -> value as text, in the structure's order; `ps N` for power states."""
    fields = _fields(data, _CONTROLLER)
    for index in range(min(data[263], 31) + 1):
        fields[f"ps {index:4}"] = _power_state(data, _POWER_STATES + 32 * index)
    return fields


def namespace_fields(data: bytes) -> dict[str, str]:
    """Identify Namespace (CNS 00h): field name -> value as text; `lbaf N` for LBA formats, the one in use marked."""
    fields = _fields(data, _NAMESPACE)
    flbas = data[26]
    in_use = (flbas & 0x0F) | (flbas & 0x60) >> 1
    for index in range(min(data[25], 63) + 1):
        metadata, log2_bytes, performance = struct.unpack_from("<HBB", data, _LBA_FORMATS + 4 * index)
        mark = " (in use)" if index == in_use else ""
        fields[f"lbaf {index:2}"] = f"ms:{metadata:<3} lbads:{log2_bytes:<2} rp:{performance & 3:#x}{mark}"
    return fields


def lines(fields: dict[str, str]) -> list[str]:
    """`field : value`, the colons below each other."""
    width = max(len(name) for name in fields)
    return [f"{name:<{width}} : {value}" for name, value in fields.items()]


def _fields(data: bytes, layout: tuple[tuple[str, int, str], ...]) -> dict[str, str]:
    if len(data) != IDENTIFY_BYTES:
        raise ValueError(f"identify data has {len(data)} bytes instead of {IDENTIFY_BYTES}")
    return {name: _value(data, offset, code) for name, offset, code in layout}


def _value(data: bytes, offset: int, code: str) -> str:
    kind, count = code[0], code[1:]
    if kind == "s":
        text = data[offset : offset + int(count)].split(b"\0")[0].rstrip(b" ")
        return text.decode("utf-8", errors="replace")
    if kind == "h":
        return data[offset : offset + int(count)].hex()
    if kind == "r":  # A little-endian identifier, such as an OUI, written from its most significant byte.
        return data[offset : offset + int(count)][::-1].hex()
    (number,) = struct.unpack_from("<" + code.lstrip("x"), data, offset)
    if code in ("Q",) and offset + 16 <= len(data):  # 128-bit counters of bytes.
        number |= struct.unpack_from("<Q", data, offset + 8)[0] << 64
    return f"{number:#x}" if kind == "x" and number else f"{number}"


def _power_state(data: bytes, offset: int) -> str:
    power, _, flags, entry_us, exit_us = struct.unpack_from("<HBBII", data, offset)
    rrt, rrl, rwt, rwl = struct.unpack_from("<BBBB", data, offset + 12)
    watts = power * (0.0001 if flags & 1 else 0.01)
    state = "non-operational" if flags & 2 else "operational"
    return f"mp:{watts:.2f}W {state} enlat:{entry_us} exlat:{exit_us} rrt:{rrt} rrl:{rrl} rwt:{rwt} rwl:{rwl}"
