"""What docs/guide/python.md shows runs as it is pasted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
# These need what is not there (a store under test, an optional package), take minutes, or are run by other tests.
ELSEWHERE = ("import polars", "def test_", "flashmob.gpu")


def test_the_page_names_every_fixture() -> None:
    from flashmob import pytest_plugin

    for name in vars(pytest_plugin):
        if name.startswith("flashmob_"):
            assert f"`{name}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("block", [block for block in BLOCKS if not any(word in block for word in ELSEWHERE)])
def test_its_programs_run(block: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    # Earlier blocks import what later ones use.
    names: dict[str, object] = {}
    exec("import flashmob, numpy", names)
    exec(block.replace('runtime="5s"', 'runtime="100ms", size="16M"'), names)
