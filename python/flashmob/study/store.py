"""Results of a study in a folder: one JSON file for each measurement, named by the hash of its point's settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flashmob.errors import ConfigError
from flashmob.outputs import check_folder, write_text
from flashmob.study.points import Trial, key

SCHEMA = 1


class Store:
    """What a study has measured so far. Files appear whole; one that somebody damaged is as if it were not there."""

    def __init__(self, folder: Path, study: str) -> None:
        """Makes the folder if need be.

        Raises:
            ConfigError: if it cannot be written.
        """
        self.folder = check_folder(folder, "--out")
        self._study = study
        self._points = check_folder(self.folder / "points", "--out")

    def path(self, trial: Trial) -> Path:
        """Where a measurement's result is, or will be."""
        return self._points / f"{key({'study': self._study, 'settings': dict(trial.settings)})}.{trial.repeat}.json"

    def load(self, trial: Trial) -> dict[str, Any] | None:
        """The result; None where there is none of this very point.

        Raises:
            ConfigError: if another version of flashmob wrote it.
        """
        path = self.path(trial)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or not isinstance(document.get("result"), dict):
            return None
        if document.get("schema") != SCHEMA:
            raise ConfigError(
                f"{path}: was written by another version of flashmob; use --fresh to start over, or another --out"
            )
        same = document.get("settings") == dict(trial.settings) and document.get("repeat") == trial.repeat
        result: dict[str, Any] = document["result"]
        return result if same and document.get("study") == self._study else None

    def save(self, trial: Trial, result: dict[str, Any]) -> None:
        """Keeps a result; a full disk leaves what was there before."""
        document = {
            "schema": SCHEMA,
            "study": self._study,
            "settings": dict(trial.settings),
            "repeat": trial.repeat,
            "result": result,
        }
        try:
            text = json.dumps(document, indent=1, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"what was measured at {dict(trial.settings)} is no JSON: {error}") from None
        write_text(self.path(trial), text + "\n")
