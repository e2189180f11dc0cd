"""Faults that an SSD is told to show: what became of a rule, and files of rules that may change while it is served."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flashmob.device import core_module
from flashmob.errors import ConfigError
from flashmob.explain import did_you_mean, short
from flashmob.outputs import write_text

# What a rule begins with; as much of a file as tells whether it holds rules.
_KINDS = ("error", "delay", "reorder", "lose", "corrupt", "drop", "fatal")
_MOST_RULES_BYTES = 1 << 20


@dataclass(frozen=True)
class FaultCount:
    """One rule since it was given.

    Attributes:
        rule: as it was written.
        matched: commands that it was meant for.
        injected: those of them that it hit.
    """

    rule: str
    matched: int
    injected: int


def rule_list(rules: Sequence[str]) -> list[str]:
    """The rules that a caller gave; one text alone would be taken for a list of letters.

    Raises:
        ConfigError: saying what to write.
    """
    if isinstance(rules, str) or not isinstance(rules, Sequence):
        one = short(rules)
        example = f"[{one}]" if isinstance(rules, str) else "['error on=read']; [] are none"
        raise ConfigError(f"faults={one} is not possible: write a list of rules, {example}")
    for rule in rules:
        if not isinstance(rule, str):
            raise ConfigError(f"faults={short(rules)} is not possible: {short(rule)} is no text; write a list of rules")
    return list(rules)


def read_rules(path: str | os.PathLike[str], what: str = "") -> list[str]:
    """The rules of a file: one a line; blank lines and lines that begin with # count for nothing.

    `what` names the file in errors.

    Raises:
        ConfigError: naming the file, the rule and the fix.
    """
    try:
        lines = _content(Path(path).expanduser(), str(what or path)).decode("utf-8-sig").splitlines()
    except ConfigError:
        raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{what or path}: cannot be read ({why}); name a file of rules, one a line") from None
    rules = [line.strip() for line in lines]
    rules = [rule for rule in rules if rule and not rule.startswith("#")]
    try:
        core_module().check_faults(rules)
    except ConfigError as error:
        raise ConfigError(f"{what or path}: {error}") from None
    return rules


def _content(file: Path, what: str) -> bytes:
    """What a file holds. A pipe is refused rather than waited for: it may have taken the file's place while served.

    Raises:
        ConfigError: naming the file by `what`; an OSError where it cannot be read.
    """
    # Without O_NONBLOCK opening a pipe waits for its writer; what was opened is looked at, not what has the name now.
    with open(file, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise ConfigError(f"{what}: is no file but a pipe or a device; name a file of rules, one a line")
        text = opened.read(_MOST_RULES_BYTES + 1) or b""
    if len(text) > _MOST_RULES_BYTES:
        raise ConfigError(f"{what}: is larger than any file of rules; name one of rules, one a line")
    return text


def write_rules(path: str | os.PathLike[str], rules: Sequence[str]) -> None:
    """Checks the rules and puts them into the file at once, so that nobody sees half of them.

    Raises:
        ConfigError: naming the rule, or the file, and the fix.
    """
    core_module().check_faults(list(rules))
    _check_replaceable(path)
    try:
        write_text(path, "".join(f"{rule}\n" for rule in rules))
    except OSError as error:
        if Path(path).expanduser().is_dir():
            raise ConfigError(f"{path} is a folder; name a file in it") from None
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); use a folder that is yours") from None


def _check_replaceable(path: str | os.PathLike[str]) -> None:
    """Refuses to replace what is no file of rules, wrong ones included: an image or a profile that was meant."""
    file = Path(path).expanduser()
    if not file.exists() or file.is_dir():
        return
    refused = f"{path} is there already and is no file of rules"
    if not file.is_file():
        raise ConfigError(f"{refused}; name a file")
    with suppress(OSError):  # Who may not read it is told by the write.
        with file.open("rb") as opened:
            text = opened.read(_MOST_RULES_BYTES).decode("utf-8-sig", "replace")
        lines = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        # One that is misspelt is still a rule.
        if lines and not any(line[0] in _KINDS or did_you_mean(line[0], _KINDS) for line in lines):
            raise ConfigError(
                f"{refused}, which begin with one of {', '.join(_KINDS)}; name another file, or remove it"
            )


class FaultFile:
    """A file of rules that is looked at again and again."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._seen: object = ()

    def check(self, what: str) -> None:
        """Refuses what could never become a file of rules, before anything is served; `what` names it in errors.

        Raises:
            ConfigError: if the file is wrong, or its folder does not exist.
        """
        path = Path(self.path).expanduser()
        if path.exists():
            read_rules(path, what)
        elif not path.parent.is_dir():
            raise ConfigError(f"{what}: the folder {path.parent} does not exist; make it, or name another file")

    def changed(self) -> list[str] | None:
        """The rules, where the file is another than at the last look; else None. A file that is gone has none.

        Raises:
            ConfigError: if the file cannot be read; it is not looked at again until it changes.
        """
        try:
            found = Path(self.path).expanduser().stat()
        except OSError:
            state: object = ()
        else:
            state = (found.st_mtime_ns, found.st_size, found.st_ino)
        if state == self._seen:
            return None
        self._seen = state
        return [] if state == () else read_rules(self.path)
