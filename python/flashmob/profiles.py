"""Profiles: one TOML file per device, checked against the models in models.py.

Names are looked up among the user's own profiles first (user_profile_folder), then among the packaged ones.

A profile has a `description`, the tables [timing], [controller], [engine], [subsystem] with
[[subsystem.namespaces]], [fidelity], and [sources], which says where each number of the others comes from.
Whatever is wrong becomes one ConfigError that names file, key and fix.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from flashmob.errors import ConfigError
from flashmob.explain import did_you_mean, explain, short
from flashmob.inputs import parse_settings, read_settings
from flashmob.models import OUTSIDE_KEYS, Profile, keys_of_others, known_keys

M = TypeVar("M", bound=BaseModel)


def profile_folder() -> Path:
    """Where the packaged profiles lie: inside the installed package, or in the source tree's profiles/."""
    here = Path(__file__).resolve().parent
    installed = here / "profiles"
    return installed if installed.is_dir() else here.parents[1] / "profiles"


# An error's name for a key that was changed, where it begins or follows what it is about.
_OPTION_SET = re.compile(r"(?<!\S)--set ")
_KIND = re.compile(r"[A-Za-z][\w+-]*:")


def door_mistyped(text: str) -> str:
    """Why a text is no file: it names a kind of door that there is not. Else empty."""
    if _KIND.match(text) is None or text.endswith(".toml"):
        return ""
    # A text that is too long for a path names no file, either.
    with contextlib.suppress(OSError):
        if Path(text).expanduser().exists():
            return ""
    kind = text.partition(":")[0]
    if kind == "pci":
        return f"{short(text)} is a drive of this machine, and here a profile is wanted; give its name or a .toml file"
    if kind in ("vfio-user", "nvme-tcp"):
        return (
            f"{short(text)} is the door of an SSD that another process serves, and here a profile is wanted; give its "
            "profile's name or a .toml file"
        )
    return (
        f"{short(text)} is not possible: no door is called {kind}; write vfio-user:PATH or "
        "nvme-tcp:ADDRESS:PORT/NQN for an SSD that another process serves"
    )


# What profiles were called before they were named after their sources.
_FORMER_NAMES = {"storagenext-10m": "kioxia-10m", "storagenext-40m": "swarmio-40m"}
# Stands in place of a source where an override has changed the value.
SET_BY_HAND = "set by hand"


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """Where a profile that has a name lies.

    Attributes:
        name: the file's name without its ending.
        path: the file.
        packaged: whether it came with flashmob; else it is the user's own.
        shadows: whether it stands in place of a packaged profile of the same name.
    """

    name: str
    path: Path
    packaged: bool
    shadows: bool = False


def user_profile_folder() -> Path | None:
    """Where the user's own profiles lie, there or not: flashmob/profiles in $XDG_CONFIG_HOME, by default ~/.config."""
    configured = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    # The XDG Base Directory Specification has relative paths ignored.
    if configured.is_absolute():
        return configured / "flashmob" / "profiles"
    try:
        return Path.home() / ".config" / "flashmob" / "profiles"
    except RuntimeError:
        return None


def profile_files() -> dict[str, ProfileFile]:
    """Every profile that has a name, sorted by it; the user's own stand in place of packaged ones."""
    found = {path.stem: ProfileFile(path.stem, path, packaged=True) for path in _toml_files(profile_folder())}
    for path in _toml_files(user_profile_folder()):
        found[path.stem] = ProfileFile(path.stem, path, packaged=False, shadows=path.stem in found)
    return dict(sorted(found.items()))


def _toml_files(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    try:
        return [path for path in folder.iterdir() if path.suffix == ".toml" and path.is_file()]
    except OSError:  # There is none, or it is not for us to read.
        return []


def profile_names() -> list[str]:
    """The names of the packaged profiles and of the user's own, sorted."""
    return list(profile_files())


def is_profile_name(name: str) -> bool:
    """Whether a profile has this name, or had it once."""
    return name in _FORMER_NAMES or name in profile_files()


def load_profile(name_or_path: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None) -> Profile:
    """Reads a profile by name, the user's own or a packaged one, or any profile file by path.

    Args:
        name_or_path: "d7-ps1010", or a path ending in .toml or holding a slash.
        overrides: dotted key -> value, applied before the check: {"timing.read_iops": "5e6",
            "subsystem.namespaces.0.media": "generated"}.

    Raises:
        ConfigError: with one sentence naming file, key and fix.
    """
    content, path, packaged = read_profile(name_or_path)
    return parse_profile(content, path=path, overrides=overrides, every_number_sourced=packaged)


def read_profile(name_or_path: str | os.PathLike[str]) -> tuple[str, Path, bool]:
    """A profile's text as it stands there, unchecked; its file; and whether it is a packaged one.

    Raises:
        ConfigError: if there is no such profile, or its file cannot be read.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise ConfigError(
            f'profile {short(name_or_path)} is not possible: give a profile\'s name such as "d7-ps1010" '
            "(flashmob.profile_names()), the path of a .toml file, or a Profile"
        )
    text = os.fspath(name_or_path)
    if isinstance(name_or_path, str) and (why := door_mistyped(text)):
        raise ConfigError(why)
    if text.endswith(".toml") or os.sep in text:
        path, packaged = Path(text).expanduser(), False
    else:
        files = profile_files()
        found = files.get(text) or files.get(_FORMER_NAMES.get(text, ""))
        if found is None:
            raise ConfigError(
                f"profile {short(text)} is not known{did_you_mean(text, list(files))}; "
                f"use one of {', '.join(files) or '(none are installed)'} or the path of a .toml file"
            )
        path, packaged = found.path, found.packaged
    try:
        return read_settings(path, short(text)), path, packaged
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check the path and its permissions") from None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{short(text)}: is not a readable UTF-8 file ({error}); save it as UTF-8") from None


def parse_profile(
    text: str,
    *,
    path: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    every_number_sourced: bool = False,
) -> Profile:
    """Checks a profile's TOML text; see load_profile. `every_number_sourced` asks [sources] to cover [timing]."""
    where = str(path) if path else "profile"
    data = parse_settings(text, where)
    for key in OUTSIDE_KEYS:
        if key in data:
            raise ConfigError(f"{where}: {key} is not a key of a profile; remove it, the file's name names the profile")
    sources = data.pop("sources", {})
    if not isinstance(sources, dict):
        raise ConfigError(f'{where}: sources = {short(sources)} is not possible: use a table of key = "source"')
    flat = _flatten_sources(sources, where)
    numbers = _numbers_of(data)
    _check_sources(flat, numbers, where, every_number_sourced)
    data["sources"] = flat
    changed = set()
    for key, value in (overrides or {}).items():
        _override(data, key, value)
        flat[key] = SET_BY_HAND
        changed.add(key)
    _drop_keys_of_others(data, changed)
    data["name"] = path.stem if path else "custom"
    data["path"] = path
    return _checked(Profile, data, where, changed)


def parse_overrides(assignments: Iterable[str]) -> dict[str, str]:
    """From KEY=VALUE texts to {"timing.read_iops": "5e6"}; the last of equal keys wins."""
    overrides = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {short(assignment)} has no key or no '='; write for example timing.read_iops=5e6")
        overrides[key.strip()] = value.strip()
    return overrides


def changes(given: object) -> Mapping[str, Any]:
    """What the argument `set` of bench() and Ssd() may be.

    Raises:
        ConfigError: saying what to write.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise ConfigError(
            f'set={short(given)} is not possible: write a dict of keys and values, {{"timing.read_iops": 5e6}}'
        )
    return given


@contextlib.contextmanager
def changes_errors() -> Iterator[None]:
    """Errors about changes of keys, in Python's name of them: nobody wrote --set who wrote set={...}.

    Raises:
        ConfigError: with that name.
    """
    try:
        yield
    except ConfigError as error:
        raise ConfigError(_OPTION_SET.sub("set ", str(error), count=1)) from None


def with_overrides(profile: Profile, overrides: Mapping[str, Any], named: Mapping[str, str] | None = None) -> Profile:
    """A copy of a profile with dotted keys changed and everything checked again.

    `named`: keys among them that an option of its own gave -> that option as the user wrote it, for errors.
    """
    if not overrides:
        return profile
    # Without what the profile leaves to the defaults, so that one can still tell what it sets.
    data = profile.model_dump(by_alias=True, exclude_unset=True)
    if "namespaces" in data.get("subsystem", {}):
        data["subsystem"]["namespaces"] = list(data["subsystem"]["namespaces"])
    data["sources"] = dict(profile.sources)
    for key, value in overrides.items():
        _override(data, key, value)
        data["sources"][key] = SET_BY_HAND
    _drop_keys_of_others(data, set(overrides))
    return _checked(Profile, data, str(profile.path or profile.name), set(overrides), named)


def _drop_keys_of_others(data: dict[str, Any], changed: Set[str]) -> None:
    """Whoever changes the model by hand need not take out what the file says for the one before."""
    timing = data.get("timing")
    if "timing.model" not in changed or not isinstance(timing, dict):
        return
    for key in keys_of_others(timing.get("model")):
        by_hand = any(one == f"timing.{key}" or one.startswith(f"timing.{key}.") for one in changed)
        if not by_hand and timing.pop(key, None) is not None:
            for dotted in [one for one in data["sources"] if one.startswith(f"timing.{key}")]:
                del data["sources"][dotted]


def _override(data: dict[str, Any], dotted: str, value: Any) -> None:
    normal = [("0" if part.isascii() and part.isdigit() else part) for part in dotted.split(".")]
    if ".".join(normal) not in known_keys():
        hint = did_you_mean(dotted, known_keys()) or (
            "; write TABLE.KEY=VALUE, such as timing.read_iops=5e6 (`flashmob profiles show NAME` lists the keys)"
        )
        raise ConfigError(f"--set {short(dotted)} is not a known key{hint}")
    target: Any = data
    parts = dotted.split(".")
    for part, below in pairwise(parts):
        if isinstance(target, list):
            target = _item(target, part, dotted)
            continue
        empty: Any = [{}] if below.isdigit() else {}
        target = target.setdefault(part, empty)
        if not isinstance(target, dict | list):
            return  # The file itself is wrong at this place; the check will say so.
    if isinstance(target, dict):
        target[parts[-1]] = value


def namespace_overrides(size: str | int | None, media: str | None) -> dict[str, str | int]:
    """Overrides that `size` and `media` of namespace 1 mean; a file that exists gives its own size if none is given."""
    key = "subsystem.namespaces.0."
    overrides: dict[str, str | int] = {}
    if media is not None:
        overrides[key + "media"] = media
        # What is no text at all is refused where everything is checked.
        kind, _, path = media.partition(":") if isinstance(media, str) else ("", "", "")
        if kind == "cow" or (kind in ("file", "direct") and _is_file(path)):
            overrides[key + "size_bytes"] = 0
    if size is not None:
        overrides[key + "size_bytes"] = size
    return overrides


def media_path(media: str) -> str | None:
    """The file behind a namespace's media; None where there is none."""
    kind, _, path = media.partition(":")
    return path if kind in ("file", "direct", "cow") else None


def _is_file(path: str) -> bool:
    try:
        return Path(path).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        return False


def _item(items: Sequence[Any], index: str, dotted: str) -> Any:
    if not index.isdigit() or len(index) > 9 or int(index) >= len(items):
        most = f"0 to {len(items) - 1}" if len(items) > 1 else "0"
        raise ConfigError(f"--set {short(dotted)}: there is no item {index[:12]}; use {most}")
    return items[int(index)]


def _checked(
    model: type[M],
    data: Mapping[str, Any],
    where: str,
    overridden: Iterable[str] = (),
    named: Mapping[str, str] | None = None,
) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(error, model, where, overridden, named)) from None
    except RecursionError:
        raise ConfigError(f"{where}: is nested too deeply; use the tables that the reference lists") from None


def _flatten_sources(table: Mapping[str, Any], where: str, prefix: str = "", depth: int = 0) -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, str) and value.strip():
            flat[prefix + key] = value
        elif isinstance(value, dict) and depth < 4:
            flat.update(_flatten_sources(value, where, f"{prefix}{key}.", depth + 1))
        else:
            raise ConfigError(
                f"{where}: sources.{prefix}{key} = {short(value)} is not possible: name the source in text"
            )
    return flat


def _numbers_of(data: Mapping[str, Any]) -> list[str]:
    """Dotted keys of the numbers that a file gives in [timing]; "50us" and "2.47M" are numbers too."""
    timing = data.get("timing", {})
    if not isinstance(timing, dict):
        return []
    words = ("model", "per_request_updates", "nand")
    nand = timing.get("nand")
    inner = [key for key in nand if key not in ("victim", "protected_buffer")] if isinstance(nand, dict) else []
    return [f"timing.{key}" for key in timing if key not in words] + [f"timing.nand.{key}" for key in inner]


def _check_sources(sources: Mapping[str, str], numbers: Sequence[str], where: str, complete: bool) -> None:
    known = [*known_keys(), "subsystem.namespaces", "description"]
    sections = {key.partition(".")[0] for key in known}
    for key in sources:
        indexed = ".".join("0" if part.isdigit() else part for part in key.split("."))
        if indexed not in known and key not in sections:
            raise ConfigError(f'{where}: sources."{key}" is not a known key{did_you_mean(key, known)}')
    if complete:
        for number in numbers:
            if number not in sources:
                raise ConfigError(f'{where}: {number} has no source; add "{number}" = "where it is from" to [sources]')
