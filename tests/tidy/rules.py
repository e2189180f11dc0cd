"""The house rules that a program can check. Each rule takes the tree's root and returns one sentence per violation."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_LINES = 600
CODE = {".h", ".cuh", ".hpp", ".inl", ".cpp", ".cu", ".py", ".pyi", ".sh", ".cmake"}
HEADERS = {".h", ".cuh", ".hpp", ".inl"}
# Where tabs have a meaning, or where bytes are data.
TABS_ALLOWED = {"Makefile", "LICENSE"}
TABS_CHECKED = CODE | {".md", ".toml", ".txt", ".json", ".yml", ".yaml"}
# Public headers that any room may include: plain data that every component is configured with. `load` and
# `interfaces` also take their options as the public header defines them, and `extent` is what its header says.
PUBLIC_TO_ALL = {"flashmob/config.h", "flashmob/error.h", "flashmob/faults.h"}
PUBLIC_TO_ROOM = {
    "load": {"flashmob/bench.h"},
    "interfaces": {"flashmob/interfaces.h"},
    "extent": {"flashmob/extents.h"},
}
# The rooms that implement the public headers, and so may include all of them.
PUBLIC_IMPLEMENTERS = {
    "api",
    "gpu_host_engine",
    "gpu_host_attach",
    "gpu_host_service",
    "gpu_host_socket",
    "gpu_host",
    "gpu_workloads",
    "gpu_evaluation",
}
# The bindings offer the public headers, and the kernels that are compiled in.
BINDINGS_ROOMS = {"gpu_workloads", "gpu_evaluation"}
# Device code runs on a GPU: the rooms it may include, and the standard headers that hold there. simt/ is the layer that
# makes a CPU or a GPU of it, and may use what both sides need for that.
DEVICE_CODE = "gpu/include/"
DEVICE_ROOMS = {"nvme", "timing", "base"}
# Headers of other rooms that compile as device code.
DEVICE_HEADERS = {"command_set/namespace_shape.h", "command_set/nvm_decode.h"}
DEVICE_STANDARD = {"bit", "concepts", "cstddef", "cstdint", "limits", "new", "type_traits", "utility"}
# Headers among them that are the host's side of device code: they make it and look at it, and include what they like.
HOST_HEADERS = {"flashmob/gpu/audit.h", "flashmob/gpu/cache_owner.h"}
SIMT_LAYER = "flashmob/gpu/simt/"
SIMT_ROOMS = {"base"}
# What ties device code to one maker's hardware, or makes it assume lockstep.
CUDA_WORDS = re.compile(
    r"\b(?:threadIdx|blockIdx|blockDim|gridDim|__shared__|__syncthreads|__syncwarp|__activemask|__\w+_sync|cooperative_groups"
    r"|atomic(?:Add|CAS|Exch|Or|And|Max|Min))\b"
)
CONTAINERS = re.compile(
    r"\bstd::(?:vector|string|map|set|unordered_map|unordered_set|deque|list|function|atomic\w*|mutex|unique_ptr|shared_ptr)\b"
)

# What a header declares: functions, and members by the house's underscore. Guards have names that nobody says again.
FUNCTION = re.compile(
    r"^[ \t]*(?!(?:return|else|throw|new|delete|using|const std::\w*lock\w*|std::\w*lock\w*)\b)"
    r"(?:[\w:<>,*&\[\]]+[ \t]+)+?[*&]*([A-Za-z]\w*)\([^;{}]*\)[^;{}()]*[;{:]",
    re.MULTILINE,
)
MEMBER = re.compile(r"\b([a-z]\w*_)(?:\[[^\]]*\])?\s*(?:=[^;]*|\{[^;]*\})?;")
DEFINITION = re.compile(r"^[\w:<>,*&\[\] \t]*?\b\w+(?:<[^>\n]*>)?::(\w+)\(", re.MULTILINE)

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
ROOM = re.compile(r"flashmob_room\(\s*(\w+)([^)]*)\)")
# Written in pieces, so that this file does not name what it forbids.
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b(?!\(#\d+\))")
MAP = "docs/reference/architecture.md"
PYTHON = "python/"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Room:
    """One flashmob_room(...) line of src/CMakeLists.txt: `folder` lies below `base` (src or gpu)."""

    name: str
    base: str
    folder: str
    deps: tuple[str, ...]


def files(root: Path) -> list[Path]:
    """All files of the project: git's view where there is one, else everything that is not built or hidden."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            check=True,
        ).stdout.decode()
        found = [root / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = [
            path
            for path in root.rglob("*")
            if not any(
                part.startswith(".") or part in {"build", "dist", "__pycache__"}
                for part in path.parts[len(root.parts) :]
            )
        ]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def text_of(path: Path) -> str:
    """The file's text; bytes that are no UTF-8 are replaced."""
    return path.read_text(encoding="utf-8", errors="replace")


def code_files(root: Path, suffixes: set[str], under: str = "") -> Iterator[tuple[str, Path]]:
    """Pairs of (path relative to root, path) for the files with one of the suffixes."""
    for path in files(root):
        name = path.relative_to(root).as_posix()
        if path.suffix in suffixes and name.startswith(under):
            yield name, path


def rooms(root: Path) -> dict[str, Room]:
    """The table of rooms, as src/CMakeLists.txt states it."""
    text = re.sub(r"#.*", "", text_of(root / "src/CMakeLists.txt"))
    table = {}
    for name, arguments in ROOM.findall(text):
        words = arguments.split()
        folder = words[words.index("DIR") + 1] if "DIR" in words else name
        deps = tuple(words[words.index("DEPS") + 1 :]) if "DEPS" in words else ()
        base = "gpu" if folder.startswith("../gpu/") else "src"
        table[name] = Room(name, base, folder.removeprefix("../gpu/"), deps)
    return table


def room_of(table: dict[str, Room], path: str) -> Room | None:
    """The room that a path relative to src/ or gpu/ lies in: the one with the longest matching folder."""
    matching = [room for room in table.values() if path.startswith(room.folder + "/")]
    return max(matching, key=lambda room: len(room.folder), default=None)


def check_room_order(root: Path) -> list[str]:
    """An arrow points to a room that stands above it in the table, so there can be no cycle."""
    problems, seen = [], set[str]()
    for room in rooms(root).values():
        problems += [
            f"src/CMakeLists.txt: {room.name} lists {dep}, which is not declared before it"
            for dep in room.deps
            if dep not in seen
        ]
        seen.add(room.name)
    return problems


def check_map(root: Path) -> list[str]:
    """The map of the house and the table of rooms show the same: a room has a row of its own, or the row of the folder
    above it says its name; rows name folders that are there, and seams the header that declares them."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text_of(root / MAP).splitlines()
        if line.startswith("| `")
    ]
    named = {folder: row[1] for row in rows for folder in re.findall(r"`([^`]+/)`", row[0])}
    problems = [f"{MAP}: names {folder}, which is no folder" for folder in named if not (root / folder).is_dir()]
    for room in rooms(root).values():
        above, _, leaf = f"{room.base}/{room.folder}".rpartition("/")
        if f"{above}/{leaf}/" not in named and f"`{leaf}`" not in named.get(f"{above}/", ""):
            problems.append(f"{MAP}: does not name {above}/{leaf}/, the room {room.name} of src/CMakeLists.txt")
    for row in rows:
        name, header = row[0].strip("`"), row[1].strip("`")
        if name.isidentifier() and header.endswith(".h"):
            path = root / header
            if not path.is_file() or not re.search(rf"\bclass {name}\b", text_of(path)):
                problems.append(f"{MAP}: says that {header} declares {name}, which it does not")
    return problems


def check_includes(root: Path) -> list[str]:
    """Code includes only the rooms that the table allows, by their full path under src/ or include/."""
    table = rooms(root)
    problems = []
    for name, path in code_files(root, CODE, "include/"):
        problems += [
            f"{name}: a public header includes {target}, which is not public"
            for target in included(path)
            if not target.startswith("flashmob/") and room_of(table, target)
        ]
    for base, name, path in [
        *(("src", name, path) for name, path in code_files(root, CODE, "src/")),
        *(("gpu", name, path) for name, path in code_files(root, CODE, "gpu/") if room_folder(table, name)),
    ]:
        inside = name.removeprefix(f"{base}/")
        if path.suffix == ".py" or inside == "CMakeLists.txt":
            continue
        if inside.startswith("bindings/"):
            allowed, own, public = BINDINGS_ROOMS, "bindings", True
        elif room := room_of(table, inside):
            allowed, own, public = {room.name, *room.deps}, room.name, room.name in PUBLIC_IMPLEMENTERS
        else:
            problems.append(f"{name}: lies in no room of src/CMakeLists.txt")
            continue
        for target in included(path):
            if base == "gpu" and target.startswith(SIMT_LAYER if own == "simt" else "flashmob/gpu/"):
                continue
            if target.startswith("flashmob/"):
                if not public and target not in PUBLIC_TO_ALL | PUBLIC_TO_ROOM.get(own, set()):
                    problems.append(f"{name}: includes {target}, but {own} is below the public API")
            elif other := room_of(table, target):
                if other.name not in allowed:
                    problems.append(f"{name}: includes {target}, but {own} may not include {other.name}")
            elif (path.parent / target).exists() and own != "bindings":
                problems.append(f"{name}: includes {target} without its room's name")
    return problems


def room_folder(table: dict[str, Room], name: str) -> bool:
    """Whether a path under gpu/ lies in a room's folder."""
    return any(room.base == "gpu" and name.startswith(f"gpu/{room.folder}/") for room in table.values())


def check_device_code(root: Path) -> list[str]:
    """Device code compiles for a GPU and for a CPU: no host library, no containers, no maker's words outside simt/."""
    table = rooms(root)
    problems = []
    for name, path in code_files(root, CODE, DEVICE_CODE):
        simt = name.startswith(DEVICE_CODE + SIMT_LAYER)
        if name.removeprefix(DEVICE_CODE) in HOST_HEADERS:
            continue
        for target in included(path):
            if target.startswith("flashmob/gpu/"):
                if target in HOST_HEADERS:
                    problems.append(f"{name}: includes {target}, which is for host code")
                if simt and not target.startswith(SIMT_LAYER):
                    problems.append(f"{name}: includes {target}, but simt/ is the ground floor")
            elif other := room_of(table, target):
                allowed = target in DEVICE_HEADERS and not simt
                if not allowed and other.name not in (SIMT_ROOMS if simt else DEVICE_ROOMS):
                    problems.append(f"{name}: includes {target}, but device code may not include {other.name}")
            elif not simt and target not in DEVICE_STANDARD:
                problems.append(f"{name}: includes {target}, which a GPU does not have")
        if simt:
            continue
        for number, line in enumerate(text_of(path).splitlines(), 1):
            code = line.split("//")[0]
            problems += [
                f"{name}:{number}: says {found.group()}, which belongs behind simt/"
                for found in (CUDA_WORDS.search(code), CONTAINERS.search(code))
                if found
            ]
    return problems


def check_unused(root: Path) -> list[str]:
    """What a header declares, somebody uses: its name stands somewhere besides its declarations and definitions.

    Public headers, and those for kernels, offer theirs to others.
    """
    texts = {
        name: re.sub(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', "", text_of(path), flags=re.DOTALL)
        for name, path in code_files(root, {".h", ".cuh", ".inl", ".cpp", ".cu"})
    }
    uses = Counter(word for text in texts.values() for word in re.findall(r"[A-Za-z_]\w*", text))
    declared = Counter[str]()
    places: dict[str, str] = {}
    for name, text in texts.items():
        if not name.endswith(".h"):
            declared.update(DEFINITION.findall(text))
        elif name.startswith(("src/", "gpu/")) and not name.startswith(DEVICE_CODE):
            for found in (*FUNCTION.finditer(text), *MEMBER.finditer(text)):
                # A member's uses look like its declaration.
                declared[found[1]] = 1 if found[1].endswith("_") else declared[found[1]] + 1
                places.setdefault(found[1], f"{name}:{text.count(chr(10), 0, found.start(1)) + 1}")
    return [
        f"{place}: declares {word}, which nobody uses" for word, place in places.items() if uses[word] <= declared[word]
    ]


def included(path: Path) -> list[str]:
    """What a file includes, in quotes or in angle brackets."""
    return [quoted or angled for quoted, angled in INCLUDE.findall(text_of(path))]


def check_python_arrows(root: Path) -> list[str]:
    """Modules of the package import each other in one direction, also where the import waits inside a function.

    What only a type checker reads may look back.
    """
    names = {module_of(name): name for name, _ in code_files(root, {".py"}, PYTHON + "flashmob/")}
    arrows: dict[str, set[str]] = {}
    for module, name in names.items():
        arrows[module] = {
            target
            for base, word in python_imports(ast.parse(text_of(root / name)))
            # The package itself hands out its modules' names when they are asked for.
            if (target := f"{base}.{word}" if f"{base}.{word}" in names else base) in names and target != "flashmob"
        }
    problems, done = [], set[str]()

    def follow(module: str, way: tuple[str, ...]) -> None:
        if module in way:
            problems.append(f"{names[way[-1]]}: closes a circle: {' -> '.join((*way[way.index(module) :], module))}")
        elif module not in done:
            for target in sorted(arrows[module]):
                follow(target, (*way, module))
            done.add(module)

    for module in sorted(names):
        follow(module, ())
    return problems


def module_of(name: str) -> str:
    """The module that a file below PYTHON is."""
    return name.removeprefix(PYTHON).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def python_imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Pairs of (module, name) that the code imports when it runs; the name is empty where all of a module is."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        yield from python_imports(node)


def check_length(root: Path) -> list[str]:
    """A file is one thing, and one thing fits in MAX_LINES lines."""
    problems = []
    for name, path in code_files(root, CODE):
        lines = text_of(path).count("\n")
        if lines > MAX_LINES:
            problems.append(f"{name}: has {lines} lines; {MAX_LINES} is the limit")
    return problems


def check_opening_comment(root: Path) -> list[str]:
    """A header says first what it is."""
    return [
        f"{name}: does not open with a comment"
        for name, path in code_files(root, HEADERS)
        if not text_of(path).lstrip().startswith(("//", "/*"))
    ]


def check_unfinished(root: Path) -> list[str]:
    """Unfinished work is an issue, and its mark names it."""
    problems = []
    for name, path in code_files(root, CODE | {".toml", ".md", ".txt"}):
        for number, line in enumerate(text_of(path).splitlines(), 1):
            if UNFINISHED.search(line):
                problems.append(f"{name}:{number}: is marked unfinished without an issue's number")
    return problems


def check_whitespace(root: Path) -> list[str]:
    """No tabs, no blanks at the end of a line, one newline at the end of a file."""
    problems = []
    for name, path in code_files(root, TABS_CHECKED):
        if path.name in TABS_ALLOWED or "/corpus/" in name:
            continue
        text = text_of(path)
        for number, line in enumerate(text.split("\n"), 1):
            if "\t" in line:
                problems.append(f"{name}:{number}: has a tab")
            if line != line.rstrip():
                problems.append(f"{name}:{number}: ends in blanks")
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            problems.append(f"{name}: does not end in exactly one newline")
    return problems


def check_links(root: Path) -> list[str]:
    """Relative links in the documentation lead to files, and to headings where they name one."""
    problems = []
    for name, path in code_files(root, {".md"}):
        prose = re.sub(r"```.*?```", "", text_of(path), flags=re.DOTALL)
        for pair in LINK.findall(prose):
            target, _, anchor = (pair[0] or pair[1]).partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            destination = (path.parent / target) if target else path
            if not destination.exists():
                problems.append(f"{name}: links to {target}, which does not exist")
            elif anchor and destination.suffix == ".md" and anchor not in anchors(destination):
                problems.append(f"{name}: links to {target}#{anchor}, but there is no such heading")
    return problems


def anchors(path: Path) -> set[str]:
    """The anchors that a Markdown file's headings get."""
    headings = re.findall(r"^#+\s+(.*)$", re.sub(r"```.*?```", "", text_of(path), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def check_fuzz_seeds(root: Path) -> list[str]:
    """Every fuzzer has seeds: a folder of its name with at least one file."""
    problems = []
    for path in sorted((root / "tests/fuzz").glob("*_fuzz.cpp")):
        corpus = root / "tests/fuzz/corpus" / path.stem
        if not any(corpus.glob("*")):
            problems.append(f"tests/fuzz/{path.name}: has no seeds in tests/fuzz/corpus/{path.stem}/")
    return problems


def config_fields(root: Path) -> dict[str, dict[str, str]]:
    """The structs of include/flashmob/config.h: name -> {field: C++ type}."""
    text = re.sub(r"//.*", "", text_of(root / "include/flashmob/config.h"))
    structs = {}
    for name, body in re.findall(r"struct (\w+) \{(.*?)\n\};", text, re.DOTALL):
        fields = re.findall(r"^\s*([\w:<>]+)\s+(\w+)\s*(?:=|\{|;)", body, re.MULTILINE)
        structs[name] = {field: kind for kind, field in fields if kind not in {"void", "return"}}
    return structs


def check_profiles(root: Path) -> list[str]:
    """Profiles use the keys of config.h, and every number in them says where it comes from."""
    structs = config_fields(root)
    device = {key: kind for key, kind in structs["DeviceConfig"].items() if kind in structs}
    problems = []
    for path in sorted((root / "profiles").glob("*.toml")):
        name = path.relative_to(root).as_posix()
        try:
            profile = tomllib.loads(text_of(path))
        except tomllib.TOMLDecodeError as error:
            problems.append(f"{name}: is no TOML: {error}")
            continue
        sources = profile.pop("sources", {})
        if not profile.pop("description", ""):
            problems.append(f"{name}: has no description")
        numbers = set[str]()
        for section, values in profile.items():
            if section not in device:
                problems.append(f"{name}: [{section}] is no part of a device (config.h)")
                continue
            tables = [(section, values, structs[device[section]])]
            for number, namespace in enumerate(values.pop("namespaces", []) if section == "subsystem" else []):
                tables.append((f"subsystem.namespaces.{number}", namespace, structs["NamespaceConfig"]))
            for prefix, table, fields in tables:
                inner = [key for key, value in table.items() if isinstance(value, dict) and fields.get(key) in structs]
                tables += [(f"{prefix}.{key}", table.pop(key), structs[fields[key]]) for key in inner]
                problems += [f"{name}: {prefix}.{key} is no field of config.h" for key in table if key not in fields]
                numbers |= {
                    f"{prefix}.{key}"
                    for key, value in table.items()
                    if isinstance(value, int | float | list) and not isinstance(value, bool)
                }
        problems += [f"{name}: {key} has no source in [sources]" for key in sorted(numbers - sources.keys())]
        problems += [
            f"{name}: [sources] names {key}, which the profile does not set" for key in sorted(sources.keys() - numbers)
        ]
    return problems


RULES = [
    check_room_order,
    check_map,
    check_includes,
    check_device_code,
    check_unused,
    check_python_arrows,
    check_length,
    check_opening_comment,
    check_unfinished,
    check_whitespace,
    check_links,
    check_fuzz_seeds,
    check_profiles,
]
