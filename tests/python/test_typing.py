"""Editors and type checkers know the package's options, and mistakes in them are found before anything runs."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import flashmob
import pytest
from flashmob.errors import ConfigError
from flashmob.given import FIO_NAMES, SHORT_NAMES
from flashmob.keywords import BenchKeywords, FioKeywords, SsdKeywords
from flashmob.options import KNOWN
from flashmob.runner import prepare

TREE = Path(__file__).parents[2]
EXAMPLES = sorted((TREE / "examples" / "python").glob("*.py"))

WRONG = """\
import flashmob
from flashmob import Ssd

flashmob.bench("d7-ps1010", qdepth=4)
flashmob.bench("d7-ps1010", rw="reed")
flashmob.bench("d7-ps1010", runtime=5)
Ssd("d7-ps1010", sizes="1G")
Ssd("d7-ps1010", size=b"1G")
Ssd.from_profile("d7-ps1010", timeout=1)
with Ssd("d7-ps1010") as ssd:
    ssd.read("0")
    ssd.queue().read(0, 7)
    reveal_type(ssd.read(0))
    reveal_type(ssd.identify_controller().mdts)
    reveal_type(ssd.smart_log().temperature_c)


async def wait(queue: flashmob.Queue) -> None:
    reveal_type(await queue.flush())
"""
# The line, and what mypy says of it.
FOUND = {
    4: '"qdepth"',
    5: '"rw"',
    6: '"runtime"',
    7: '"sizes"',
    8: '"size"',
    9: '"timeout"',
    11: '"read" of "Ssd"',
    12: '"read" of "Queue"',
    13: "ndarray",
    14: '"int"',
    15: '"int"',
    19: '"None"',
}


def mypy(*arguments: str) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed; run pip install mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(TREE / "pyproject.toml"), *arguments]
    return subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=300, check=False)


def test_examples_pass_the_strictest_check() -> None:
    assert len(EXAMPLES) >= 4
    done = mypy(*map(str, EXAMPLES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_mistakes_are_found(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(WRONG, encoding="utf-8")
    said: dict[int, str] = {}
    for line in mypy(str(script)).stdout.splitlines():
        place, _, text = line.partition(": ")
        if ":" in place:
            number = int(place.rsplit(":", 1)[1])
            said[number] = said.get(number, "") + text
    assert set(said) == set(FOUND), said
    for number, word in FOUND.items():
        assert word in said[number]


def test_every_keyword_is_an_option() -> None:
    for key in get_type_hints(BenchKeywords):
        with pytest.raises((ConfigError, TypeError, AttributeError)) as caught:
            prepare("d7-ps1010", {key: object()})
        assert "not a known" not in str(caught.value), key


def test_every_option_is_a_keyword() -> None:
    keywords = set(get_type_hints(BenchKeywords))
    assert set(SHORT_NAMES) | set(FIO_NAMES) <= keywords
    # bench() knows these by itself: the profile's place may hold a target.
    assert set(KNOWN) - {"target", "trace_sizes_namespace"} <= keywords
    taken = set(inspect.signature(flashmob.Ssd).parameters) - {"profile"}
    assert taken == set(get_type_hints(SsdKeywords))


@pytest.mark.parametrize("keywords", [BenchKeywords, FioKeywords, SsdKeywords])
def test_every_keyword_is_documented(keywords: type) -> None:
    # Editors show the text below a key.
    (body,) = (node.body for node in ast.parse(inspect.getsource(keywords)).body if isinstance(node, ast.ClassDef))
    for at, node in enumerate(body):
        if isinstance(node, ast.AnnAssign):
            below = body[at + 1]
            assert isinstance(below, ast.Expr), ast.unparse(node)
            assert isinstance(below.value, ast.Constant), ast.unparse(node)


def test_every_public_name_is_documented() -> None:
    for name in flashmob.__all__:
        thing = getattr(flashmob, name)
        if name == "__version__":
            continue
        assert inspect.getdoc(thing), name
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not member.startswith("_") and (callable(value) or isinstance(value, property | classmethod)):
                assert inspect.getdoc(getattr(thing, member)), f"{name}.{member}"


def test_names_are_loaded_when_they_are_used() -> None:
    # What type checkers see, and what is there, are two lists.
    text = Path(flashmob.__file__).read_text(encoding="utf-8")
    declared = set(re.findall(r"^    from flashmob\.\w+ import (\w+) as \1$", text, re.MULTILINE))
    assert declared | {"__version__"} == set(flashmob.__all__)
    assert set(flashmob.__all__) <= set(dir(flashmob))
    with pytest.raises(AttributeError, match="module 'flashmob' has no attribute 'Sdd'"):
        flashmob.Sdd  # noqa: B018
    # Every run of pytest loads the plugin wherever flashmob is installed.
    code = "import sys, flashmob.pytest_plugin; print(*sys.modules)"
    paths = os.pathsep.join([str(TREE / "python"), *sys.path])
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert not {"numpy", "pydantic", "flashmob._core"} & set(loaded)


def test_ctrl_c_is_seen_to_before_anything_is_loaded() -> None:
    # Whatever the entry point imports first is time in which Ctrl-C ends in a traceback.
    code = "import sys; old = {*sys.modules}; import flashmob.__main__; print(*sorted({*sys.modules} - old))"
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=os.environ | {"PYTHONPATH": str(TREE / "python")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert loaded == ["flashmob", "flashmob.__main__"]
