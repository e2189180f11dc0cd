"""The report that README.md shows is what its command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from flashmob import cli
from flashmob.device import core_module

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.skipif(core_module().free_memory_bytes() < 2 << 30, reason="it takes half of what is free, 1 GiB at most")
def test_the_report_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = re.search(
        r"```sh\nflashmob (bench [^\n]*)\n```\n\n```text\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL
    )
    assert shown is not None
    assert cli.run(lambda: cli.app(shlex.split(shown[1]), standalone_mode=True)) == 0
    printed = capsys.readouterr().out.splitlines()
    # The machine's own time is all that may differ.
    took = re.compile(r"took .* for ")
    assert [took.sub("took for ", line.rstrip()) for line in printed] == [
        took.sub("took for ", line) for line in shown[2].splitlines()
    ]
