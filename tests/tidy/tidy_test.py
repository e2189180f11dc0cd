"""The house rules hold, and each rule finds a violation planted for it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _load_rules():
    # Loaded by path: the tests are no package, and pytest's importlib mode puts no folder on sys.path.
    spec = importlib.util.spec_from_file_location("tidy_rules", Path(__file__).with_name("rules.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["tidy_rules"] = module
    spec.loader.exec_module(module)
    return module


rules = _load_rules()


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_the_rule(rule: Callable[[Path], list[str]]) -> None:
    problems = rule(ROOT)
    assert not problems, "\n" + "\n".join(problems)


def test_shipped_profiles_load() -> None:
    profiles = pytest.importorskip("flashmob.profiles", reason="the package is not installed")
    names = [path.stem for path in (ROOT / "profiles").glob("*.toml")]
    assert names
    for name in names:
        assert profiles.load_profile(str(ROOT / "profiles" / f"{name}.toml")).name == name


SOUND = {
    "src/CMakeLists.txt": "flashmob_room(base)\n"
    "flashmob_room(nvme DEPS base)\n"
    "flashmob_room(door DIR transport/door THREADED DEPS nvme)\n"
    "flashmob_room(api DEPS base nvme door)\n"
    "flashmob_room(simt DIR ../gpu/simt DEPS base)\n"
    "flashmob_room(gpu_host DIR ../gpu/host DEPS base api simt)\n",
    "include/flashmob/config.h": "// Settings.\n"
    "struct TimingConfig {\n  double read_iops = 1e6;  // a rate\n  void validate() const;\n};\n"
    'struct NamespaceConfig {\n  std::string media = "memory";\n};\n'
    "struct SubsystemConfig {\n  std::vector<NamespaceConfig> namespaces{NamespaceConfig{}};\n};\n"
    "struct DeviceConfig {\n  SubsystemConfig subsystem;\n  TimingConfig timing;\n};\n",
    "include/flashmob/ssd.h": '// The public face.\n#include "flashmob/config.h"\n',
    "src/base/check.h": "// Checks.\n#include <string>\n",
    "src/nvme/command.h": '// Wire format.\n#include "base/check.h"\n#include "flashmob/config.h"\n',
    "src/transport/door/door.cpp": '#include "nvme/command.h"\n',
    "src/api/ssd.cpp": '#include "flashmob/ssd.h"\n#include "transport/door/door.h"\n',
    "gpu/include/flashmob/gpu/simt/fibre.h": '// Fibres.\n#include <vector>\n#include "base/check.h"\n__shared__ int x;'
    "\n",
    "gpu/include/flashmob/gpu/queue.h": '// A queue.\n#include <cstdint>\n#include "flashmob/gpu/simt/fibre.h"\n'
    '#include "nvme/command.h"\n',
    "gpu/simt/fibre.cpp": '#include "flashmob/gpu/simt/fibre.h"\n#include "base/check.h"\n',
    "gpu/host/gpu.cpp": '#include "flashmob/ssd.h"\n#include "flashmob/gpu/queue.h"\n#include "host/world.h"\n',
    "gpu/host/world.h": "// A world.\n",
    "gpu/tests/queue/seeds.cpp": '#include "host/world.h"\n#include "flashmob/gpu/queue.h"\n',
    "src/bindings/module.cpp": '#include "flashmob/ssd.h"\n',
    "profiles/fast.toml": 'description = "fast"\n[timing]\nread_iops = 2e6\n'
    '[[subsystem.namespaces]]\nmedia = "memory"\n[sources]\n"timing.read_iops" = "its datasheet"\n',
    "docs/reference/architecture.md": "# Map\n| folder | what |\n|---|---|\n| `src/base/`, `src/nvme/` | low |\n"
    "| `src/transport/` | doors: `door` |\n| `src/api/` | top |\n| `gpu/simt/` | fibres |\n| `gpu/host/` | hosts |\n"
    "| interface | in |\n|---|---|\n| `Crate` | `src/base/crate.h` |\n",
    "src/base/crate.h": "// A crate.\nclass Crate {};\n",
    "docs/guide.md": "# Guide\n[here](#guide) and [there](other.md#a-heading-of-note)\n",
    "docs/other.md": "# Other\n## A heading, of note!\n",
    "src/base/used.h": "// Used.\nclass Used {\n  int of_use() const;\n  int also_ = 0;\n};\n",
    "src/base/used.cpp": "int Used::of_use() const { return also_; }\nint x = Used().of_use();\n",
    "python/flashmob/a.py": "import flashmob.b\n",
    "python/flashmob/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from flashmob.a import f as f\n",
    "tests/fuzz/command_fuzz.cpp": "int x;\n",
    "tests/fuzz/corpus/command_fuzz/empty": "",
}

PLANTED = [
    (
        "check_room_order",
        "src/CMakeLists.txt",
        "flashmob_room(base DEPS nvme)\nflashmob_room(nvme)\n",
        "base lists nvme",
    ),
    ("check_map", "docs/reference/architecture.md", "| `src/base/` | low |\n", "does not name src/nvme/"),
    ("check_map", "docs/reference/architecture.md", "| `src/transport/` | doors |\n", "transport/door/, the room door"),
    ("check_map", "docs/reference/architecture.md", "| `src/cellar/` | old |\n", "src/cellar/, which is no folder"),
    ("check_map", "docs/reference/architecture.md", "| `Crate` | `src/base/check.h` |\n", "declares Crate"),
    ("check_map", "docs/reference/architecture.md", "| `Crate` | `src/base/gone.h` |\n", "declares Crate"),
    ("check_includes", "src/base/up.h", '// Up.\n#include "nvme/command.h"\n', "base may not include nvme"),
    ("check_includes", "src/base/up.h", "// Up.\n#include <nvme/command.h>\n", "base may not include nvme"),
    ("check_includes", "src/transport/door/door.h", '// Door.\n#include "base/check.h"\n', "door may not include base"),
    ("check_includes", "src/nvme/api.h", '// Api.\n#include "flashmob/ssd.h"\n', "below the public API"),
    ("check_includes", "src/bindings/more.cpp", '#include "base/check.h"\n', "bindings may not include base"),
    ("check_includes", "src/nvme/short.h", '// Short.\n#include "command.h"\n', "without its room's name"),
    ("check_includes", "src/attic/old.h", "// Old.\n", "lies in no room"),
    ("check_includes", "include/flashmob/leak.h", '// Leak.\n#include "base/check.h"\n', "which is not public"),
    ("check_includes", "gpu/simt/up.cpp", '#include "host/world.h"\n', "simt may not include gpu_host"),
    ("check_includes", "gpu/simt/up.cpp", '#include "flashmob/gpu/queue.h"\n', "below the public API"),
    ("check_includes", "gpu/host/up.h", '// Up.\n#include "nvme/command.h"\n', "gpu_host may not include nvme"),
    ("check_includes", "src/base/up.h", '// Up.\n#include "flashmob/gpu/queue.h"\n', "below the public API"),
    (
        "check_device_code",
        "gpu/include/flashmob/gpu/a.h",
        '// A.\n#include "host/world.h"\n',
        "may not include gpu_host",
    ),
    ("check_device_code", "gpu/include/flashmob/gpu/a.h", "// A.\n#include <vector>\n", "which a GPU does not have"),
    ("check_device_code", "gpu/include/flashmob/gpu/a.h", "// A.\n\nint x = threadIdx.x;\n", "a.h:3: says threadIdx"),
    ("check_device_code", "gpu/include/flashmob/gpu/a.h", "// A.\nstd::vector<int> x;\n", "says std::vector"),
    ("check_device_code", "gpu/include/flashmob/gpu/a.h", '// A.\n#include "flashmob/gpu/audit.h"\n', "for host code"),
    (
        "check_device_code",
        "gpu/include/flashmob/gpu/simt/a.h",
        '// A.\n#include "flashmob/gpu/queue.h"\n',
        "is the ground floor",
    ),
    (
        "check_unused",
        "src/base/idle.h",
        "// Idle.\nclass Idle {\n  // spare() is nobody's.\n  int spare() const;\n};\n",
        "idle.h:4: declares spare",
    ),
    ("check_unused", "src/base/idle.h", "// Idle.\nclass Idle {\n  int left_over_ = 0;\n};\n", "declares left_over_"),
    (
        "check_python_arrows",
        "python/flashmob/b.py",
        "from flashmob import a\n",
        "b.py: closes a circle: flashmob.a -> flashmob.b -> flashmob.a",
    ),
    (
        "check_python_arrows",
        "python/flashmob/b.py",
        "def f() -> None:\n    from flashmob.a import x as _\n",
        "b.py: closes a circle: flashmob.a -> flashmob.b -> flashmob.a",
    ),
    ("check_length", "src/base/long.cpp", "int x;\n" * 601, "601 lines"),
    ("check_opening_comment", "src/base/bare.h", "#pragma once\n", "does not open with a comment"),
    ("check_opening_comment", "src/base/bare.cuh", "#pragma once\n", "does not open with a comment"),
    ("check_unfinished", "src/base/later.cpp", "// TO" + "DO: finish this\n", "later.cpp:1"),
    ("check_whitespace", "src/base/tab.cpp", "int x;\n\tint y;\n", "tab.cpp:2: has a tab"),
    ("check_whitespace", "src/base/blank.cpp", "int x; \n", "ends in blanks"),
    ("check_whitespace", "src/base/end.cpp", "int x;", "exactly one newline"),
    ("check_links", "docs/broken.md", "[gone](gone.md)\n", "links to gone.md"),
    ("check_links", "docs/broken.md", "[gone](other.md#nowhere)\n", "no such heading"),
    ("check_fuzz_seeds", "tests/fuzz/other_fuzz.cpp", "int x;\n", "no seeds"),
    (
        "check_profiles",
        "profiles/bad.toml",
        'description = "x"\n[timing]\nread_iop = 1\n[sources]\n"timing.read_iop" = "x"\n',
        "no field",
    ),
    ("check_profiles", "profiles/bad.toml", 'description = "x"\n[timing]\nread_iops = 1\n', "has no source"),
    ("check_profiles", "profiles/bad.toml", 'description = "x"\n[sources]\n"timing.read_iops" = "x"\n', "does not set"),
    ("check_profiles", "profiles/bad.toml", 'description = "x"\n[time]\nx = 1\n', "no part of a device"),
    ("check_profiles", "profiles/bad.toml", 'description = "x"\n[[subsystem.namespaces]]\nsize = 1\n', "no field"),
    ("check_profiles", "profiles/bad.toml", "description = ", "is no TOML"),
    ("check_profiles", "profiles/bad.toml", "[timing]\n", "no description"),
]


def _build(root: Path, tree: dict[str, str]) -> None:
    for name, text in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_a_sound_tree_passes(rule: Callable[[Path], list[str]], tmp_path: Path) -> None:
    _build(tmp_path, SOUND)
    assert rule(tmp_path) == []


@pytest.mark.parametrize(
    ("rule", "name", "text", "expected"), PLANTED, ids=[f"{rule}-{i}" for i, (rule, *_) in enumerate(PLANTED)]
)
def test_a_planted_violation_is_found(rule: str, name: str, text: str, expected: str, tmp_path: Path) -> None:
    _build(tmp_path, SOUND | {name: text})
    problems = getattr(rules, rule)(tmp_path)
    assert len(problems) >= 1
    assert any(expected in problem for problem in problems), problems
    assert all(name in problem for problem in problems if expected in problem)


def test_every_rule_has_a_planted_violation() -> None:
    assert {rule for rule, *_ in PLANTED} == {rule.__name__ for rule in rules.RULES}
