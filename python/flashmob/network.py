"""Addresses that people write as names, such as localhost:4420."""

from __future__ import annotations

import ipaddress
import socket

from flashmob.errors import ConfigError
from flashmob.units import split_address


def numeric_address(address: str, what: str) -> str:
    """ADDRESS:PORT with a name replaced by its address; IPv4 is preferred where a name has both.

    Args:
        address: as parse_address answers it.
        what: who wants it, for the error.

    Raises:
        ConfigError: if nobody knows the name.
    """
    host, port = split_address(address)
    try:
        ipaddress.ip_address(host)
        return address
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise ConfigError(
            f"{what} {address}: no host called {host} is known; write an address such as 127.0.0.1:{port or 4420}"
        )
    family, *_, place = min(found, key=lambda one: one[0] != socket.AF_INET)
    return f"[{place[0]}]:{port}" if family == socket.AF_INET6 else f"{place[0]}:{port}"
