"""What has to be first where this package is the flashmob command: Ctrl-C while it is still being imported.

Importing takes a good part of a second, more from a cold disk, and nothing of ours can catch what is raised there.
"""

from __future__ import annotations

import sys
from types import TracebackType


def _is_the_command() -> bool:
    # Python calls the program "-m" while it imports the package that it was told to run.
    program = sys.argv[0] if sys.argv else ""
    return program == "-m" or program.rpartition("/")[2] == "flashmob"


def _quietly(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Says nothing of a Ctrl-C; the process ends by the signal all the same, which shells call 130."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


if _is_the_command():
    sys.excepthook = _quietly
