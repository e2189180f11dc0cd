"""What a study found, as a tidy table: a row for each measurement, a column for each setting and each figure."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flashmob.errors import ConfigError
from flashmob.outputs import write_text
from flashmob.study.points import Trial

if TYPE_CHECKING:
    import os

Row = dict[str, Any]


class Table:
    """Rows of settings, `repeat` and figures; `results` are the documents that the figures were taken from.

    `measured` has each with its trial, and `new` those that were not there before.
    """

    def __init__(
        self,
        measured: Sequence[tuple[Trial, dict[str, Any]]],
        *,
        is_whole: bool = True,
        new: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.measured = list(measured)
        self.is_whole = is_whole
        self.new = list(new)

    @property
    def results(self) -> list[dict[str, Any]]:
        """What each measurement returned, in the rows' order."""
        return [result for _, result in self.measured]

    def rows(self, figures: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None) -> list[Row]:
        """The rows; figures that lie deeper in a result are named with dots, or are those that `figures` takes out."""
        taken = figures or flat
        return [{**trial.settings, "repeat": trial.repeat, **taken(result)} for trial, result in self.measured]

    def to_polars(self) -> Any:
        """The rows as a polars DataFrame.

        Raises:
            ConfigError: if polars is missing.
        """
        try:
            import polars
        except ImportError:
            raise ConfigError("a data frame needs polars; run pip install polars") from None
        return polars.DataFrame(self.rows(), infer_schema_length=None)

    def write_csv(self, path: str | os.PathLike[str], rows: Sequence[Row] | None = None) -> None:
        """The rows as a file of comma-separated values."""
        write_csv(path, self.rows() if rows is None else rows)


def write_csv(path: str | os.PathLike[str], rows: Sequence[Row]) -> None:
    """Rows as a file of comma-separated values; what a row lacks is empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in rows)
    write_text(path, text.getvalue())


def flat(result: Mapping[str, Any], above: str = "") -> Row:
    """A document's figures and words by their names; lists are left out."""
    row: Row = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            row |= flat(value, f"{above}{name}.")
        elif not isinstance(value, list):
            row[above + name] = value
    return row


def spread(values: Sequence[float | None]) -> tuple[float, float, float] | None:
    """Mean, least and most of the values that are there; None where there is none."""
    there = [value for value in values if value is not None and math.isfinite(value)]
    return (statistics.fmean(there), min(there), max(there)) if there else None
