"""The names of a completion's status: one per code of the core's, and the same in both halves of the package."""

from __future__ import annotations

import re
from pathlib import Path

from flashmob.errors import NvmeError, status_name

DRIVER = Path(__file__).parents[2] / "src" / "driver" / "names.cpp"
CODES = Path(__file__).parents[2] / "src" / "nvme" / "status.h"


def test_both_halves_have_the_same_names() -> None:
    rows = re.findall(r'\{0x([0-9A-F]{3}), "([^"]+)"\}', DRIVER.read_text(encoding="utf-8"))
    in_core = {int(code, 16): name for code, name in rows}
    assert len(in_core) == len(rows) > 70
    named = {code for code in range(0x800) if not status_name(code).startswith("SCT ")}
    assert {code: status_name(code) for code in named} == in_core
    known = re.findall(r"^  [a-z_0-9]+ = 0x([0-9A-F]{3}),(?: +//.*)?$", CODES.read_text(encoding="utf-8"), re.MULTILINE)
    assert {int(code, 16) for code in known} == named


def test_names_that_one_half_lacked() -> None:
    assert status_name(0x022) == "Transient Transport Error"
    assert status_name(0x4000 | 0x101) == "Invalid Queue Identifier"
    assert str(NvmeError(0x021, "read")) == "read failed: Command Interrupted (SCT 0h, SC 21h)"
    assert status_name(0x7FF) == "SCT 7h, SC FFh"
