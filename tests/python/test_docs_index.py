"""docs/README.md leads to every page."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_every_page_is_listed() -> None:
    linked = set(re.findall(r"\]\(([\w./-]+\.md)\)", (DOCS / "README.md").read_text(encoding="utf-8")))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("*/*.md")}
    assert pages - linked == set()
