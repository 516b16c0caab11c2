"""Entry of the command `blockmdp`. It answers signals before the imports, which take a second."""

from __future__ import annotations

import os
import signal

__all__ = ["main"]


def main() -> int:
    """Import the command and run it. Ctrl-C and SIGTERM end it at any moment, in one line."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _stop)
    from blockmdp.cli import main as command

    return command()


def _stop(signum: int, frame: object) -> None:
    os.write(2, b"blockmdp: interrupted\n")
    os._exit(128 + signum)
