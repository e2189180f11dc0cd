"""What the name of a device means: a profile, the door of another process, or an SSD that this user serves.

A profile goes before a served SSD of its name: what `bench d7-ps1010` does must not depend on what runs beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from flashmob.checks import TCP_ONLY
from flashmob.errors import ConfigError
from flashmob.explain import did_you_mean, short
from flashmob.options import is_target
from flashmob.profiles import door_mistyped, is_profile_name, profile_names
from flashmob.registry import servers

T = TypeVar("T")


def is_profile(text: str) -> bool:
    """Whether a name is a profile's rather than that of an SSD that is served.

    Raises:
        ConfigError: if it is neither.
    """
    if is_target(text):
        raise ConfigError(
            f"{text} is the door of another process, which answers to its hosts (`nvme id-ctrl`); name a profile, or "
            "an SSD that `flashmob ls` lists"
        )
    if why := door_mistyped(text):
        raise ConfigError(why)
    if text.endswith(".toml") or os.sep in text or is_profile_name(text):
        return True
    running = [state["name"] for state in servers()]
    if text in running:
        return False
    names = [*profile_names(), *running]
    served = f"; you serve {', '.join(running)}" if running else ", and no SSD is served by you"
    raise ConfigError(
        f"{short(text)} is not known, neither as a profile nor as an SSD that you serve{did_you_mean(text, names)}; "
        f"`flashmob profiles` lists the profiles{served}"
    )


def of_name(device: T, options: Mapping[str, Any]) -> T | str:
    """A device for a benchmark: the door of an SSD that is served under that name, anything else as it is.

    The PCIe door where there is one, unless an option asks for NVMe/TCP.

    Raises:
        ConfigError: if it is the name neither of a profile nor of an SSD that is served.
    """
    if not isinstance(device, str) or is_target(device) or is_profile_name(device):
        return device
    running = servers()
    state = next((state for state in running if state["name"] == device), None)
    if state is None:
        if os.sep not in device and not device.endswith(".toml"):
            is_profile(device)  # It is none; an SSD that is served, or was, may have been meant.
        return device
    network = any(options.get(name) not in (None, False) for name in TCP_ONLY)
    doors = sorted(map(str, state["addresses"]), key=lambda door: door.startswith("nvme-tcp:") != network)
    return doors[0] if doors else device


def door_note(name: str, device: str) -> str:
    """What to say where a name is that of a served SSD, taken or not; else empty."""
    if name != device:
        return f"{name} is an SSD that you serve: {device}"
    state = None if is_target(name) else _served(name)
    if state is None or not state["addresses"]:
        return ""
    return f"{name} is a profile here; the SSD of that name that you serve is {state['addresses'][0]}"


def _served(name: str) -> dict[str, Any] | None:
    return next((state for state in servers() if state["name"] == name), None)
