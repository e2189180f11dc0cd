"""The flashmob command, and `python -m flashmob`."""

import sys

TYPE_CHECKING = False  # See flashmob/__init__.py.
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> "NoReturn":
    """Runs the command line; the console script of the package.

    Importing it takes a good part of a second, more from a cold disk: Ctrl-C is no traceback then either.
    """
    try:
        from flashmob.cli import main as command_line
    except KeyboardInterrupt:
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
