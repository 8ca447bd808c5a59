"""The `horolog` script, and `python -m horolog`."""

from __future__ import annotations

import signal


def main() -> None:
    """Import the command line and run it; Ctrl-C during the import ends without a traceback."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else Ctrl-C is ignored
    if raises:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from horolog.cli.main import main as command_line

    if raises:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command_line()


if __name__ == "__main__":
    main()
