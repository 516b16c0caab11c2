"""Where finished runs are kept: one SQLite file, written by one process at a time.

Every row carries a checksum. A row that does not match it is as good as missing: it is told, taken
out and done again. A file that SQLite cannot read is put aside, and what can be read of it is
copied into a new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from blockmdp.experiments.runs import Outcome
from blockmdp.experiments.study import Run, Study

__all__ = ["FILE", "Row", "Store", "StoreError", "driver_of"]

FILE, LOCK = "runs.sqlite", "driver.lock"
FORMAT = 1

_TABLES = """
CREATE TABLE IF NOT EXISTS studies (
    name TEXT PRIMARY KEY, document TEXT, folder TEXT, updated REAL, checksum TEXT);
CREATE TABLE IF NOT EXISTS runs (
    key TEXT PRIMARY KEY, setting TEXT, seed INTEGER, error TEXT, average REAL, final REAL,
    solved_at INTEGER, trajectories INTEGER, ledger TEXT, seconds REAL, finished REAL,
    environment TEXT, checksum TEXT);
CREATE TABLE IF NOT EXISTS curves (key TEXT PRIMARY KEY, curve BLOB, checksum TEXT);
CREATE TABLE IF NOT EXISTS settings (key TEXT PRIMARY KEY, content TEXT, checksum TEXT);
"""
_COLUMNS = {
    "studies": ("name", "document", "folder", "updated"),
    "runs": (
        *("key", "setting", "seed", "error", "average", "final", "solved_at", "trajectories"),
        *("ledger", "seconds", "finished", "environment"),
    ),
    "curves": ("key", "curve"),
    "settings": ("key", "content"),
}


class StoreError(RuntimeError):
    """The store cannot be used; why, and what to do."""


class Row(NamedTuple):
    """A stored run, but for its curve."""

    key: str
    setting: str
    seed: int
    error: str | None
    average: float | None
    final: float | None
    solved_at: int | None
    trajectories: int
    ledger: str
    seconds: float
    finished: float
    environment: str


class Store:
    """The runs in a directory.

    Parameters
    ----------
    directory : made if it is not there and the store is to be written.
    write : take the lock; only one process can.
    tell : is given a line for whatever had to be mended.
    """

    def __init__(
        self,
        directory: str | Path,
        write: bool = False,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.directory, self._write, self._tell = Path(directory), write, tell
        self._lock: IO[str] | None = None
        self.path = self.directory / FILE
        try:
            if write:
                self.directory.mkdir(parents=True, exist_ok=True)
                self._lock = _take_lock(self.directory)
            elif not self.path.is_file():
                raise StoreError(f"no runs in {self.directory} (no file {FILE} there)")
            self._connection = self._open()
        except (OSError, sqlite3.Error) as error:
            self._release()
            raise StoreError(f"{self.path}: {error}") from None
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # --- opening ----------------------------------------------------------------------------------
    def _open(self) -> sqlite3.Connection:
        if not self._write:
            return self._open_to_read()
        if self.path.is_file() and self.path.stat().st_size == 0:
            self._tell(f"{self.path} is an empty file: whatever it held is to be done again")
        try:
            connection = self._ready()
            broken = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if broken == "ok":
                return connection
            connection.close()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            broken = str(error)
        return self._salvage(broken)

    def _open_to_read(self) -> sqlite3.Connection:
        for mode in ("mode=ro", "immutable=1"):  # the latter on a disk that cannot be written
            connection = _connect(f"file:{_quoted(self.path)}?{mode}")
            try:
                connection.execute("SELECT 1 FROM studies").fetchone()
                return connection
            except sqlite3.DatabaseError as error:
                connection.close()
                if _is_damage(error):
                    raise StoreError(
                        f"{self.path}: {error}; run the study again to mend it"
                    ) from None
                reason = error
        raise reason

    def _ready(self) -> sqlite3.Connection:
        connection = _connect(f"file:{_quoted(self.path)}")
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            known = connection.execute("PRAGMA user_version").fetchone()[0]
            if known > FORMAT:
                raise StoreError(f"{self.path} was written by a newer blockmdp: upgrade to use it")
            with connection:
                connection.executescript(_TABLES)
                connection.execute(f"PRAGMA user_version={FORMAT}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _salvage(self, broken: str) -> sqlite3.Connection:
        """Copy what can be read of a damaged file into a new one."""
        aside = self._put_aside()
        new = self._ready()
        kept = 0
        with contextlib.closing(_connect(f"file:{_quoted(aside)}?mode=ro")) as old:
            for table, columns in _COLUMNS.items():
                names = ", ".join((*columns, "checksum"))
                marks = ", ".join("?" * (len(columns) + 1))
                insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})"
                with new:
                    for row in _readable(old, f"SELECT {names} FROM {table}"):
                        if _checksum(row[:-1]) == row[-1]:
                            kept += new.execute(insert, row).rowcount * (table == "runs")
        self._tell(
            f"{self.path} was damaged ({broken}): {kept} runs could be read and are kept, "
            f"the rest will be done again; the damaged file is {aside.name}"
        )
        return new

    def _put_aside(self) -> Path:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        n = 0
        while (aside := self.directory / f"{FILE}.damaged-{stamp}-{n}").exists():
            n += 1
        self.path.rename(aside)
        for ending in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.path}{ending}").rename(f"{aside}{ending}")
        return aside

    # --- writing ----------------------------------------------------------------------------------
    def announce(self, **words: Any) -> None:
        """Say who is at work, for `driver_of`."""
        assert self._lock is not None
        _announce(self._lock, **words)

    def register(self, study: Study) -> None:
        """Note what a study consists of, so that others can see how far it is."""
        row = (study.name, json.dumps(study.document), study.folder, time.time())
        with self._writing():
            self._insert("studies", row, replace=True)
            for setting in study.settings:
                self._insert("settings", (setting.key, setting.content))

    def add(self, run: Run, outcome: Outcome) -> None:
        """Keep a run; a failed one may be replaced, a finished one never is."""
        o = outcome
        ledger, environment = json.dumps(o.ledger), json.dumps(o.environment)
        row = (
            *(run.key, run.setting.key, run.seed, o.error, o.average, o.final, o.solved_at),
            *(o.trajectories, ledger, o.seconds, time.time(), environment),
        )
        with self._writing() as connection:
            connection.execute("DELETE FROM runs WHERE key=? AND error IS NOT NULL", (run.key,))
            self._insert("runs", row)
            if o.error is None:
                self._insert("curves", (run.key, o.curve))

    def _insert(self, table: str, row: tuple[Any, ...], replace: bool = False) -> None:
        names = ", ".join((*_COLUMNS[table], "checksum"))
        marks = ", ".join("?" * (len(row) + 1))
        verb = "REPLACE" if replace else "INSERT OR IGNORE"
        self._connection.execute(
            f"{verb} INTO {table} ({names}) VALUES ({marks})", (*row, _checksum(row))
        )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connection:
                yield self._connection
        except sqlite3.Error as error:
            raise StoreError(f"cannot write to {self.path}: {error}") from None

    def drop_damaged(self) -> int:
        """Take out runs whose row or curve does not match its checksum; how many there were."""
        bad = {row[0] for row in self._rows("runs") if _checksum(row[:-1]) != row[-1]}
        curves = set()
        for row in self._rows("curves"):
            if _checksum(row[:-1]) == row[-1]:
                curves.add(row[0])
        done = {key for key, error in self._select("SELECT key, error FROM runs") if error is None}
        bad |= done - curves
        with self._writing() as connection:
            for table in ("runs", "curves"):
                connection.executemany(f"DELETE FROM {table} WHERE key=?", [(k,) for k in bad])
            stray = [(key,) for key in self._keys("curves") if key not in done]
            connection.executemany("DELETE FROM curves WHERE key=?", stray)
        if bad:
            self._tell(f"{len(bad)} damaged runs in {self.path} are taken out, to be done again")
        return len(bad)

    # --- reading ----------------------------------------------------------------------------------
    def done(self) -> set[str]:
        """Keys of all finished runs."""
        return {key for (key,) in self._select("SELECT key FROM runs WHERE error IS NULL")}

    def failed(self) -> set[str]:
        return {key for (key,) in self._select("SELECT key FROM runs WHERE error IS NOT NULL")}

    def rows(self) -> list[Row]:
        """All runs whose checksum is right; the others are told and left out."""
        rows = list(self._rows("runs"))
        good = [Row(*row[:-1]) for row in rows if _checksum(row[:-1]) == row[-1]]
        if len(good) < len(rows):
            self._tell(
                f"{len(rows) - len(good)} damaged runs in {self.path} are left out; "
                "run the study again to have them done again"
            )
        return good

    def curves(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Curves by the key of their run, those whose checksum is right."""
        wanted = set(keys)
        return {
            key: curve
            for key, curve, checksum in self._rows("curves")
            if key in wanted and _checksum((key, curve)) == checksum
        }

    def studies(self) -> list[Study]:
        """All studies that were run here, the latest last."""
        rows = (row for row in self._rows("studies") if _checksum(row[:-1]) == row[-1])
        latest_last = sorted(rows, key=lambda row: row[3])
        return [
            Study(json.loads(text), name, folder, check=False)
            for name, text, folder, *_ in latest_last
        ]

    def study(self, name: str | None = None) -> Study:
        """The study of this name, or the one run last."""
        studies = self.studies()
        if not studies:
            raise StoreError(f"{self.path} holds no study: run it again")
        found = [study for study in studies if name in (None, study.name)]
        if not found:
            names = ", ".join(study.name for study in studies)
            raise StoreError(f"{self.path} holds no study {name!r}, only {names}")
        return found[-1]

    def _keys(self, table: str) -> Iterator[str]:
        return (key for (key,) in self._select(f"SELECT key FROM {table}"))

    def _rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        names = ", ".join((*_COLUMNS[table], "checksum"))
        return self._select(f"SELECT {names} FROM {table}")

    def _select(self, query: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(query)
        except sqlite3.DatabaseError as error:
            hint = "; run the study again to mend it" if _is_damage(error) else ""
            raise StoreError(f"{self.path}: {error}{hint}") from None


def driver_of(directory: str | Path) -> dict[str, Any] | None:
    """Who is running a study in this directory just now, or None."""
    try:
        with (Path(directory) / LOCK).open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return _read_lock(file)
    except OSError:
        pass
    return None


def _take_lock(directory: Path) -> IO[str]:
    file = (directory / LOCK).open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        who = _read_lock(file)
        file.close()
        raise StoreError(
            f"{directory} is in use by process {who.get('pid', '?')} on {who.get('host', '?')}, "
            "which runs a study there: wait for it, or give another --out"
        ) from None
    _announce(file)
    return file


def _announce(file: IO[str], **more: Any) -> None:
    file.seek(0)
    file.truncate()
    json.dump({"pid": os.getpid(), "host": platform.node(), "since": time.time(), **more}, file)
    file.flush()


def _read_lock(file: IO[str]) -> dict[str, Any]:
    file.seek(0)
    try:
        return dict(json.load(file))
    except (ValueError, TypeError):
        return {}


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=30.0)


def _quoted(path: Path) -> str:
    return str(path.resolve()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _is_damage(error: sqlite3.Error) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _readable(connection: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """All rows of a damaged table that can be read, range by range of row numbers."""

    def between(low: int, high: int) -> list[tuple[Any, ...]]:
        try:
            where = f"{query} WHERE rowid >= ? AND rowid < ?"
            return list(connection.execute(where, (low, high)))
        except sqlite3.Error:
            if high - low == 1:
                return []
            middle = (low + high) // 2
            return between(low, middle) + between(middle, high)

    start, step, empty = 1, 1024, 0
    while empty < 64:  # row numbers are given out in order
        rows = between(start, start + step)
        yield from rows
        empty = 0 if rows else empty + 1
        start += step


def _checksum(row: Iterable[Any]) -> str:
    parts = (value if isinstance(value, bytes) else repr(value).encode() for value in row)
    return hashlib.blake2b(b"\0".join(parts), digest_size=8).hexdigest()
