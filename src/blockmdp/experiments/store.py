"""Where finished runs are kept: one SQLite file, written by one process at a time.

Every row carries a checksum. A row that does not match it is as good as missing: it is told, taken
out and done again. A file that SQLite cannot read is put aside, and what can be read of it is
copied into a new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import marshal
import os
import platform
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from blockmdp.experiments.runs import Outcome
from blockmdp.experiments.study import Run, Study

__all__ = ["FILE", "Row", "Store", "StoreError", "driver_of"]

FILE, LOCK = "runs.sqlite", "driver.lock"
FORMAT = 1
BLOCK = 1024  # rows that are copied at a time from a damaged file; each takes 64 bytes at least
MEND = "run the study again to mend it"

_TABLES = """
CREATE TABLE studies (
    name TEXT PRIMARY KEY, document TEXT, folder TEXT, updated REAL, checksum TEXT);
CREATE TABLE runs (
    key TEXT PRIMARY KEY, setting TEXT, seed INTEGER, error TEXT, average REAL, final REAL,
    solved_at INTEGER, trajectories INTEGER, ledger TEXT, seconds REAL, finished REAL,
    environment TEXT, checksum TEXT);
CREATE TABLE curves (key TEXT PRIMARY KEY, curve BLOB, checksum TEXT);
CREATE TABLE settings (key TEXT PRIMARY KEY, content TEXT, checksum TEXT);
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
        self._lock: int | None = None
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
            os.close(self._lock)
            self._lock = None

    # --- opening ----------------------------------------------------------------------------------
    def _open(self) -> sqlite3.Connection:
        if not self._write:
            return self._open_to_read()
        if self.path.is_file() and self.path.stat().st_size == 0:
            self._tell(f"{self.path} is an empty file: whatever it held is to be done again")
        try:
            return self._ready()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if not _is_damage(error):
                raise
            return self._salvage(str(error))

    def _open_to_read(self) -> sqlite3.Connection:
        for mode in ("mode=ro", "immutable=1"):  # the latter on a disk that cannot be written
            connection = _connect(f"file:{_quoted(self.path)}?{mode}")
            try:
                if not self._is_made(connection):
                    raise StoreError(f"{self.path} holds nothing: run the study again")
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                connection.close()
                if _is_damage(error):
                    raise StoreError(f"{self.path}: {error}; {MEND}") from None
                reason = error
            except BaseException:
                connection.close()
                raise
            else:
                wal = Path(f"{self.path}-wal")
                if mode != "mode=ro" and wal.is_file() and wal.stat().st_size:
                    self._tell(f"the latest runs may be missing: {wal} cannot be read from here")
                return connection
        raise reason

    def _ready(self) -> sqlite3.Connection:
        connection = _connect(f"file:{_quoted(self.path)}")
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            if not self._is_made(connection):
                connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version={FORMAT}; COMMIT;")
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(found)
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_made(self, connection: sqlite3.Connection) -> bool:
        """Whether the tables are there: all, and as they should be, or none."""
        if connection.execute("PRAGMA user_version").fetchone()[0] > FORMAT:
            raise StoreError(f"{self.path} was written by a newer blockmdp: upgrade to use it")
        schema = _schema(connection)
        if schema and schema != _SCHEMA:
            raise sqlite3.DatabaseError("the tables are not those of a store")
        return bool(schema)

    def _salvage(self, broken: str) -> sqlite3.Connection:
        """Copy what can be read of a damaged file into a new one."""
        aside = self._name_aside()
        _rename(self.path, aside)
        try:
            new = self._ready()
            mode = "mode=ro" if Path(f"{aside}-wal").exists() else "immutable=1"
            with contextlib.closing(_connect(f"file:{_quoted(aside)}?{mode}")) as old, new:
                blocks = 2 + aside.stat().st_size // 2**16
                kept = {table: _copy(table, old, new, blocks) for table in _COLUMNS}["runs"]
        except BaseException:
            _rename(aside, self.path)
            raise
        self._tell(
            f"{self.path} was damaged ({broken}): {kept} runs could be read and are kept, "
            f"the rest will be done again; the damaged file is {aside.name}"
        )
        return new

    def _name_aside(self) -> Path:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        names = (self.directory / f"{FILE}.damaged-{stamp}-{n}" for n in itertools.count())
        return next(name for name in names if not name.exists())

    # --- writing ----------------------------------------------------------------------------------
    def announce(self, **words: Any) -> None:
        """Say who is at work, for `driver_of`."""
        assert self._lock is not None
        _announce(self._lock, **words)

    def register(self, study: Study) -> None:
        """Note what a study consists of, so that others can see how far it is."""
        row = (study.name, study.expanded(), study.folder, time.time())
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
        row = tuple(_as_stored(value) for value in row)
        verb = "REPLACE" if replace else "INSERT OR IGNORE"
        self._connection.execute(f"{verb} {_into(table)}", (*row, _checksum(row)))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connection:
                yield self._connection
        except sqlite3.Error as error:
            raise StoreError(f"cannot write to {self.path}: {error}") from None

    def drop_damaged(self) -> int:
        """Take out what does not match its checksum, and runs without a curve; how many runs."""

        def damaged(table: str) -> list[tuple[int]]:
            rows = self._select(f"SELECT rowid, {_names(table)} FROM {table}")
            return [(n,) for n, *row, checksum in rows if _checksum(row) != checksum]

        with self._writing() as connection:
            bad = {table: damaged(table) for table in _COLUMNS}
            for table, numbers in bad.items():
                connection.executemany(f"DELETE FROM {table} WHERE rowid=?", numbers)
            finished = "FROM runs WHERE error IS NULL"
            bare = connection.execute(f"DELETE {finished} AND key NOT IN (SELECT key FROM curves)")
            connection.execute(f"DELETE FROM curves WHERE key NOT IN (SELECT key {finished})")
        runs, others = len(bad["runs"]) + bare.rowcount, len(bad["settings"] + bad["studies"])
        if runs:
            self._tell(f"{runs} damaged runs in {self.path} are taken out, to be done again")
        if others:
            self._tell(f"{others} damaged descriptions in {self.path} are taken out")
        return runs

    # --- reading ----------------------------------------------------------------------------------
    def done(self) -> set[str]:
        """Keys of all finished runs."""
        return {key for (key,) in self._select("SELECT key FROM runs WHERE error IS NULL")}

    def failed(self) -> set[str]:
        return {key for (key,) in self._select("SELECT key FROM runs WHERE error IS NOT NULL")}

    def rows(self) -> list[Row]:
        """All runs whose checksum is right; the others are told and left out."""
        rows = list(self._rows("runs"))
        good = [Row._make(row[:-1]) for row in rows if _checksum(row[:-1]) == row[-1]]
        if len(good) < len(rows):
            self._tell_left_out(len(rows) - len(good), "runs")
        return good

    def curves(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Curves by the key of their run, those whose checksum is right."""
        wanted = set(keys)
        curves = {
            key: curve
            for key, curve, checksum in self._rows("curves")
            if key in wanted and _checksum((key, curve)) == checksum
        }
        if len(curves) < len(wanted):
            self._tell_left_out(len(wanted) - len(curves), "curves")
        return curves

    def study(self, name: str | None = None) -> Study:
        """The study of this name, or the one run last."""
        rows = (row for row in self._rows("studies") if _checksum(row[:-1]) == row[-1])
        latest_last = sorted(rows, key=lambda row: row[3])
        if not latest_last:
            raise StoreError(f"{self.path} holds no study: run it again")
        found = [row for row in latest_last if name in (None, row[0])]
        if not found:
            names = ", ".join(row[0] for row in latest_last)
            raise StoreError(f"{self.path} holds no study {name!r}, only {names}")
        name, text, folder, *_ = found[-1]
        return Study.restored(text, name, folder)

    def _tell_left_out(self, n: int, what: str) -> None:
        self._tell(f"{n} damaged {what} in {self.path} are left out; {MEND}")

    def _rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        return self._select(f"SELECT {_names(table)} FROM {table}")

    def _select(self, query: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(query)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            hint = f"; {MEND}" if _is_damage(error) else ""
            raise StoreError(f"{self.path}: {error}{hint}") from None


# --- the lock -------------------------------------------------------------------------------------
def driver_of(directory: str | Path) -> dict[str, Any] | None:
    """Who is running a study in this directory just now, or None."""
    with contextlib.suppress(OSError), (Path(directory) / LOCK).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read_lock(file.fileno())
    return None


def _take_lock(directory: Path) -> int:
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        for last in (False, False, False, False, True):  # `driver_of` takes it for a moment
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if last:
                    who = _read_lock(lock)
                    raise StoreError(
                        f"{directory} is in use by process {who.get('pid', '?')} on "
                        f"{who.get('host', '?')}, which runs a study there: wait for it, "
                        "or give another --out"
                    ) from None
                time.sleep(0.1)
    except BaseException:
        os.close(lock)
        raise
    _announce(lock)
    return lock


def _announce(lock: int, **more: Any) -> None:
    who = {"pid": os.getpid(), "host": platform.node(), "since": time.time(), **more}
    words = json.dumps(who).encode()
    with contextlib.suppress(OSError):  # a full disk matters where a run is to be kept, not here
        os.pwrite(lock, words, 0)
        os.ftruncate(lock, len(words))


def _read_lock(lock: int) -> dict[str, Any]:
    try:
        return dict(json.loads(os.pread(lock, 10_000, 0)))
    except (OSError, ValueError, TypeError):
        return {}


# --- SQLite ---------------------------------------------------------------------------------------
def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=30.0)
    # text that is damaged is to be told by its checksum, not by an exception
    connection.text_factory = lambda data: data.decode(errors="replace")
    return connection


def _schema(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


with contextlib.closing(sqlite3.connect(":memory:")) as _memory:
    _memory.executescript(_TABLES)
    _SCHEMA = _schema(_memory)


def _names(table: str) -> str:
    return ", ".join((*_COLUMNS[table], "checksum"))


def _into(table: str) -> str:
    marks = ", ".join("?" * (len(_COLUMNS[table]) + 1))
    return f"INTO {table} ({_names(table)}) VALUES ({marks})"


def _rename(old: Path, new: Path) -> None:
    """Rename a database and what SQLite keeps beside it, and overwrite what had the name."""
    for ending in ("-shm", "-wal", ""):
        Path(f"{new}{ending}").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            Path(f"{old}{ending}").rename(f"{new}{ending}")


def _quoted(path: Path) -> str:
    return str(path.resolve()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _is_damage(error: Exception) -> bool:
    """Rather than a full disk, or a file that one may not write."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # none: found here
    return code & 0xFF in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _copy(table: str, old: sqlite3.Connection, new: sqlite3.Connection, blocks: int) -> int:
    """Copy the rows of a damaged table that can be read and match their checksums; how many."""
    insert = f"INSERT OR IGNORE {_into(table)}"
    good = (row for row in _readable(table, old, blocks) if _checksum(row[:-1]) == row[-1])
    return sum(new.execute(insert, row).rowcount for row in good)


def _readable(table: str, connection: sqlite3.Connection, blocks: int) -> Iterator[tuple[Any, ...]]:
    """All rows of a damaged table that can be read, by blocks of row numbers, which are given out
    in order; after so many blocks without any there are no more.
    """
    query = f"SELECT {_names(table)} FROM {table}"

    def between(low: int, high: int) -> list[tuple[Any, ...]]:
        try:
            return list(connection.execute(f"{query} WHERE rowid >= ? AND rowid < ?", (low, high)))
        except (sqlite3.Error, UnicodeDecodeError):
            if high - low == 1:
                return []
            middle = (low + high) // 2
            return between(low, middle) + between(middle, high)

    try:
        connection.execute(f"{query} LIMIT 0")
    except (sqlite3.Error, UnicodeDecodeError):
        return  # not even the table is known
    empty = 0
    for start in itertools.count(1, BLOCK):
        rows = between(start, start + BLOCK)
        yield from rows
        empty = 0 if rows else empty + 1
        if empty == blocks:
            return


def _as_stored(value: Any) -> Any:
    """What SQLite makes of a value: it knows no NaN, no -0.0 and no text that is not UTF-8."""
    if isinstance(value, float):
        return None if value != value else value + 0.0
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _checksum(row: Iterable[Any]) -> str:
    plain = marshal.dumps(tuple(row), 0)  # version 0: the same bytes for the same values
    return hashlib.blake2b(plain, digest_size=8).hexdigest()
