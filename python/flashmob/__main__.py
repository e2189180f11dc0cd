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
        import os  # These take time that nobody would watch over yet.
        import signal

        # As in flashmob.cli: a shell's loop ends only where the command was ended by the signal itself.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
