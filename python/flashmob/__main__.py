"""The flashmob command, and `python -m flashmob`."""

TYPE_CHECKING = False  # See flashmob/__init__.py.
if TYPE_CHECKING:
    import signal
    from typing import NoReturn
else:
    import _signal as signal  # What `signal` is made of: part of the interpreter, and there at once.


def main() -> "NoReturn":
    """Runs the command line; the console script of the package.

    Importing it takes a good part of a second, more from a cold disk. Ctrl-C ends the process by the signal meanwhile,
    as a shell's loop needs it (130): Python's own handler would raise wherever the import is just then, and where that
    is a callback, the exception is lost and the command goes on to its end. One that is ignored (nohup) stays ignored.
    """
    python_handles = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if python_handles:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from flashmob.cli import main as command_line

    if python_handles:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command_line()


if __name__ == "__main__":
    main()
