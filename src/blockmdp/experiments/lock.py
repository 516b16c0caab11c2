"""The lock of a store: one process writes at a time, and others can see which one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from blockmdp.experiments.errors import StoreError

__all__ = ["Lock", "driver_of"]

FILE = "driver.lock"


class Lock:
    """The right to write to a directory, until `release` or the end of this process.

    Parameters
    ----------
    directory : Path
        Directory of the store.

    Raises
    ------
    StoreError
        If another process holds the lock.
    """

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / FILE, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._acquire(directory)
        except BaseException:
            os.close(self._file)
            raise
        self.announce()

    def _acquire(self, directory: Path) -> None:
        for last in (False, False, False, False, True):  # `driver_of` holds it for a moment
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if last:
                    who = _read(self._file)
                    raise StoreError(
                        f"{directory} is in use: process {who.get('pid', '?')} on "
                        f"{who.get('host', '?')} runs a study there; wait for it, or choose "
                        "another --out"
                    ) from None
                time.sleep(0.1)

    def announce(self, **more: Any) -> None:
        """Write down which process holds the lock and what it does, for `driver_of`."""
        who = {"pid": os.getpid(), "host": platform.node(), "since": time.time(), **more}
        text = json.dumps(who).encode()
        with contextlib.suppress(OSError):  # if the disk is full, storing a run will report it
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, len(text))

    def release(self) -> None:
        os.close(self._file)


def driver_of(directory: str | Path) -> dict[str, Any] | None:
    """Return what the process that runs a study in a directory announced, or None."""
    with contextlib.suppress(OSError), (Path(directory) / FILE).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(file.fileno())
    return None


def _read(file: int) -> dict[str, Any]:
    try:
        return dict(json.loads(os.pread(file, 10_000, 0)))
    except (OSError, ValueError, TypeError):
        return {}
