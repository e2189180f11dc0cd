"""Rows of cells below each other on terminals of any width: columns that do not fit are left out, none is cut."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text


def fitting(rows: Sequence[Sequence[Text]], width: int, gap: int = 2) -> list[Text]:
    """One line a row; columns that do not fit are left out, the last ones first, but never the first."""
    widths: list[int] = []
    for cells in zip(*rows, strict=True):
        widest = max(cell.cell_len for cell in cells)
        if widths and sum(widths) + gap * len(widths) + widest > width:
            break
        widths.append(widest)
    lines = []
    for row in rows:
        line = Text()
        for cell, widest in zip(row, widths, strict=False):
            line += cell + Text(" " * (widest - cell.cell_len + gap))
        line.rstrip()
        lines.append(line)
    return lines
