"""Sizes, durations, counts and rates: from the text that people write to numbers, and back.

Every parser raises ValueError with a text that says what would be right; callers put the key in front of it.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

_NUMBER = r"([0-9][0-9_]{0,29}(?:\.[0-9]{1,18})?)"
_SIZE = re.compile(_NUMBER + r"\s*([kmgtp]?)(i?b|b)?", re.IGNORECASE | re.ASCII)
# "1e3s", too: rates and counts are written so.
_DURATION = re.compile(
    _NUMBER[:-1] + r"(?:e[+-]?[0-9]{1,2})?)\s*(ns|us|µs|ms|s|m|min|h|nsec|usec|msec|sec)", re.IGNORECASE | re.ASCII
)
_ADDRESS = re.compile(r"(?:(\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]/]*):)?([0-9]{1,5})", re.ASCII)
_LOOPBACK = "127.0.0.1"
_RATE = re.compile(_NUMBER + r"\s*([kmg]?)\s*(?:iops|/s)?", re.IGNORECASE | re.ASCII)
_COUNT = re.compile(_NUMBER + r"\s*([kmg])", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_DURATION_NS = {
    "ns": 1,
    "nsec": 1,
    "usec": 1_000,
    "msec": 1_000_000,
    "sec": 1_000_000_000,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
}


def parse_number(value: object) -> float | int | None:
    """A plain number, or the text of one such as "5e6" or "1_000"; None if it is something else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if isinstance(value, str) and len(value) <= 64:
        try:
            return int(value)
        except ValueError:
            pass
        try:
            return float(value)
        except ValueError:
            pass
    return None


def _whole(number: float | int, what: str) -> int:
    if isinstance(number, float) and (not math.isfinite(number) or number != int(number)):
        raise ValueError(f"use a whole number of {what}")
    return int(number)


def parse_count(value: object) -> int:
    """A whole number; 5e6, "5e6" and "5M" are accepted because they are whole. K, M, G are powers of 1000."""
    number = parse_number(value)
    match = _COUNT.fullmatch(value.strip()) if number is None and isinstance(value, str) else None
    if match is not None:
        scaled = Decimal(match[1].replace("_", "")) * 1000 ** _POWERS[match[2].lower()]
        number = int(scaled) if scaled == int(scaled) else float(scaled)
    if number is None:
        raise ValueError("use a whole number such as 4096, 5e6 or 5M")
    return _whole(number, "items, such as 4096 or 5e6")


def parse_size(value: object, *, binary: bool = False) -> int:
    """Bytes from a number or from text: K, M, G, T, P and KiB... are powers of 1024, KB, MB... powers of 1000.

    Where only powers of two make sense, as for blocks, `binary` makes KB, MB... powers of 1024 too.
    """
    number = parse_number(value)
    if number is not None:
        return _whole(number, "bytes")
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("use a size such as 4096, 4k, 8G or 1.92TB")
    digits, prefix, suffix = match.groups()
    decimal = (suffix or "").lower() == "b" and prefix and not binary
    scaled = Decimal(digits.replace("_", "")) * (1000 if decimal else 1024) ** _POWERS[prefix.lower()]
    if scaled != int(scaled):
        raise ValueError("use a whole number of bytes")
    return int(scaled)


def parse_duration_ns(value: object) -> int:
    """Nanoseconds from a number of them or from text with a unit: ns, us, ms, s, m, h."""
    number = parse_number(value)
    if number is not None:
        return _whole(number, "nanoseconds")
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("use a duration such as 50us, 1.5ms or 5s")
    digits, unit = match.groups()
    scaled = Decimal(digits.replace("_", "")) * _DURATION_NS[unit.lower()]
    if scaled != int(scaled):
        raise ValueError("use a whole number of nanoseconds")
    return int(scaled)


def parse_duration_with_unit_ns(value: object) -> int:
    """Like parse_duration_ns, for places where a bare number would be taken for seconds: the unit must be written."""
    number = parse_number(value)
    if number is not None and number != 0:
        raise ValueError(f"write its unit, for example {value}s or {value}us")
    return parse_duration_ns(value)


def parse_rate(value: object) -> float:
    """Requests per second from a number or from text; K, M, G are powers of 1000: "2.47M"."""
    number = parse_number(value)
    if number is None:
        match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError("use a rate in requests per second such as 5e6 or 2.47M")
        digits, prefix = match.groups()
        number = float(Decimal(digits.replace("_", "")) * 1000 ** _POWERS[prefix.lower()])
    try:
        rate = float(number)
    except OverflowError:
        rate = math.inf
    if not math.isfinite(rate):
        raise ValueError("use a finite rate")
    return rate


def parse_percent(value: object) -> float:
    """A percentage from a number or from text such as "5" or "5%"."""
    number = parse_number(value.strip().removesuffix("%").strip() if isinstance(value, str) else value)
    if number is None or not 0 <= number <= 100:
        raise ValueError("use a percentage from 0 to 100, such as 5 or 50%")
    return float(number)


def parse_share(value: object) -> float:
    """A share from a number or from text such as "0.7" or "70%"."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return parse_percent(value) / 100
    number = parse_number(value)
    if number is not None and 1 < number <= 100:
        raise ValueError(f"use a share from 0 to 1 such as 0.7, or write {number:g}% for a percentage")
    if number is None or not 0 <= number <= 1:
        raise ValueError("use a share from 0 to 1 such as 0.7, or a percentage such as 70%")
    return float(number)


def parse_block_sizes(text: str) -> list[tuple[int, float]]:
    """(bytes, weight) pairs from "4k" or from a mix such as "512:70,4k:30"; weights are relative to their sum."""
    shares = []
    parts = text.split(",")
    # Beside a weight of 70, a silent 1 is not what anybody means.
    if len({":" in part for part in parts}) > 1:
        raise ValueError("give every size a weight, as in 512:70,4k:30, or none of them")
    for part in parts:
        size, colon, weight_text = part.strip().partition(":")
        bytes_ = parse_size(size, binary=True)
        weight = parse_number(weight_text) if colon else 1.0
        if weight is None or not math.isfinite(weight) or weight <= 0:
            raise ValueError(f'give "{size}" a weight above 0, as in 512:70,4k:30')
        shares.append((bytes_, float(weight)))
    return shares


def parse_cores(value: object) -> list[int]:
    """Core numbers from a list or from text such as "0,2-4"."""
    if isinstance(value, list | tuple):
        return [parse_count(core) for core in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    wrong = ValueError("use core numbers such as 0,2-4")
    if not isinstance(value, str):
        raise wrong
    cores: list[int] = []
    for part in value.strip("[] ").split(","):
        match = re.fullmatch(r"\s*([0-9]{1,4})(?:\s*-\s*([0-9]{1,4}))?\s*", part, re.ASCII)
        if match is None:
            if part.strip() == "" and value.strip("[] ") == "":
                return []
            raise wrong
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first:
            raise wrong
        cores.extend(range(first, last + 1))
    return cores


def parse_address(value: object) -> str:
    """ADDR:PORT, with the loopback address for localhost and where only a port is given; IPv6 addresses in brackets.

    Raises:
        ValueError: saying what to write instead.
    """
    wrong = ValueError("write ADDRESS:PORT such as 127.0.0.1:4420 or [::1]:4420, or a port alone")
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong
    match = _ADDRESS.fullmatch(str(value).strip())
    if match is None or int(match[2]) > 65535:
        raise wrong
    host = match[1] or _LOOPBACK
    # Doors are opened by number; this one name means the same on every machine.
    return f"{_LOOPBACK if host.lower() == 'localhost' else host}:{int(match[2])}"


def split_address(address: str) -> tuple[str, int]:
    """Host without brackets, and port, of what parse_address answered."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def format_size(bytes_: int) -> str:
    """Text such as "8 GiB", with as many digits as are exact or useful."""
    value, unit = float(bytes_), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024 or unit == "PiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def exact_size(bytes_: int) -> str:
    """A size as one would type it, "64TiB", without rounding."""
    for power, unit in ((5, "PiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if bytes_ >= 1024**power and bytes_ % 1024**power == 0:
            return f"{bytes_ // 1024**power}{unit}"
    return str(bytes_)


def exact_duration(ns: int) -> str:
    """A duration as one would type it, "1h" or "1500us", without rounding."""
    for unit in ("h", "s", "ms", "us"):
        if ns >= _DURATION_NS[unit] and ns % _DURATION_NS[unit] == 0:
            return f"{ns // _DURATION_NS[unit]}{unit}"
    return f"{ns}ns" if ns else "0"


def format_capacity(bytes_: int) -> str:
    """Like format_size, but for what is no whole number of GiB in the units that drives are sold in: "1.92 TB"."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9)):
        if bytes_ >= scale and bytes_ % (1 << 30):
            return f"{bytes_ / scale:.3g} {unit}"
    return format_size(bytes_)


def counted(number: float, noun: str) -> str:
    """1 -> "1 queue", 4096 -> "4,096 queues"."""
    return f"{int(number):,} {noun}{'' if int(number) == 1 else 's'}"


def format_rate(per_second: float, unit: str = "IOPS") -> str:
    """Text such as "2.470 MIOPS": four digits and an SI prefix."""
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(per_second) >= scale:
            return f"{_significant(per_second / scale, 4)} {prefix}{unit}"
    return f"{_significant(per_second, 4)} {unit}"


def format_duration(ns: float, digits: int = 4) -> str:
    """Text such as "51.20 us": four digits and the largest unit that keeps the number at 1 or above."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= scale:
            return f"{_significant(ns / scale, digits)} {unit}"
    return f"{ns:.0f} ns"


def _significant(value: float, digits: int) -> str:
    magnitude = abs(value)
    if magnitude >= 1000:
        return f"{value:,.0f}"
    whole = 3 if magnitude >= 100 else 2 if magnitude >= 10 else 1
    return f"{value:.{max(0, digits - whole)}f}"
