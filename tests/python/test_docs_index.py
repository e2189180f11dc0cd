"""docs/README.md leads to every page, and the pages that list options and keys have all of them and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from flashmob.cli import app
from flashmob.models import known_keys

DOCS = Path(__file__).parents[2] / "docs"


def test_every_page_is_listed() -> None:
    linked = set(re.findall(r"\]\(([\w./-]+\.md)\)", (DOCS / "README.md").read_text(encoding="utf-8")))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("*/*.md")}
    assert pages - linked == set()


def test_the_page_of_profiles_has_their_keys() -> None:
    page = (DOCS / "reference" / "profiles.md").read_text(encoding="utf-8").partition("## Top level")[2]
    found, table = set(), ""
    for line in page.splitlines():
        heading = re.match(r"##+ (?:Top level|(\[+)(\w+)(\.\w+)?(\.\w+)?\]+)", line)
        if heading is not None:
            # A table of three names is one of each namespace's.
            index = ".0" if heading[1] == "[[" or heading[4] else ""
            table = f"{heading[2]}{heading[3] or ''}{index}{heading[4] or ''}." if heading[1] else ""
        elif line.startswith("| `"):
            found |= {table + key for key in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert found - {"description"} == set(known_keys())


@pytest.mark.parametrize("name", ["bench", "explain", "serve"])
def test_the_page_of_the_command_line_has_every_option(name: str) -> None:
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    _, _, section = page.partition(f"\n## flashmob {name}\n")
    section = section.partition("\n## ")[0]
    group: Any = typer.main.get_command(app)
    options = {word for one in group.commands[name].params for word in one.opts if word.startswith("--")}
    assert {option for option in options if not re.search(rf"`{option}[ `]", section)} == {"--help"} & options
