"""The store: finished runs in one SQLite file, written by one process at a time.

Every row has a checksum. A row that does not match its checksum is reported, deleted and run again.
A file that SQLite cannot read is renamed, and its readable rows are copied into a new file.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import marshal
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from blockmdp.checks import warn as warn_user
from blockmdp.experiments.errors import StoreError
from blockmdp.experiments.lock import Lock
from blockmdp.experiments.outcome import Outcome
from blockmdp.experiments.plan import Plan
from blockmdp.experiments.settings import Run

__all__ = ["FILE", "Row", "Store"]

FILE = "runs.sqlite"
FORMAT = 4  # 2 had no table `exact`, 3 no table `decoding`
BLOCK = 1024  # rows copied at a time from a damaged file; each takes at least 64 bytes
COMMIT_EVERY = 0.2  # seconds for which runs are collected before they are committed
REPAIR = "run the study again to repair it"

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
_EXACT = """
CREATE TABLE exact (
    key TEXT PRIMARY KEY, optimal REAL, value REAL, "values" BLOB, checksum TEXT);
"""
_DECODING = """
CREATE TABLE decoding (key TEXT PRIMARY KEY, accuracy REAL, levels BLOB, checksum TEXT);
"""
_COLUMNS = {
    "studies": ("name", "document", "folder", "updated"),
    "runs": (
        *("key", "setting", "seed", "error", "average", "final", "solved_at", "trajectories"),
        *("ledger", "seconds", "finished", "environment"),
    ),
    "curves": ("key", "curve"),
    "settings": ("key", "content"),
    "exact": ("key", "optimal", "value", '"values"'),
    "decoding": ("key", "accuracy", "levels"),
}


class Row(NamedTuple):
    """A stored run, without its curve.

    Attributes
    ----------
    key : str
        Key of the run.
    setting : str
        Key of its setting.
    seed : int
        Seed of the run.
    error : str or None
        Why the run failed; None if it did not.
    average, final : float or None
        Mean return over all episodes, and over the last `solved.window` episodes.
    solved_at : int or None
        Trajectories until the run was solved; None if it never was.
    trajectories : int
        Trajectories of all kinds that were drawn.
    ledger : str
        Trajectories by kind, as JSON.
    seconds : float
        Time that the run took.
    finished : float
        When it was finished, in seconds since 1970.
    environment : str
        Versions and machine, as JSON.
    optimal : float or None, default=None
        Optimal value of the problem; None if it is unknown.
    value : float or None, default=None
        Value of the final policy; None if it is unknown.
    accuracy : float or None, default=None
        Accuracy of the decoder at its worst level; None if it is unknown.
    """

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
    optimal: float | None = None
    value: float | None = None
    accuracy: float | None = None


class Store:
    """The runs in a directory.

    Parameters
    ----------
    directory : str or Path
        Directory of the store. It is created if the store is opened for writing.
    write : bool, default=False
        Open for writing. Only one process can at a time.
    warn : callable, default=blockmdp.checks.warn
        Called with one line about everything that is damaged or missing.

    Raises
    ------
    StoreError
        If there is no store, or it cannot be used.
    """

    def __init__(
        self,
        directory: str | Path,
        write: bool = False,
        warn: Callable[[str], None] = warn_user,
    ) -> None:
        self.directory, self._write, self._warn = Path(directory), write, warn
        self._lock: Lock | None = None
        self._committed = -math.inf  # when runs were last committed
        self.path = self.directory / FILE
        try:
            if write:
                self.directory.mkdir(parents=True, exist_ok=True)
                self._lock = Lock(self.directory)
            elif not self.path.is_file():
                raise StoreError(f"no runs in {self.directory}: it has no file {FILE}")
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
        try:
            self._commit()
        finally:
            self._connection.close()
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # --- opening ----------------------------------------------------------------------------------
    def _open(self) -> sqlite3.Connection:
        if not self._write:
            return self._open_to_read()
        if self.path.is_file() and self.path.stat().st_size == 0:
            self._warn(f"{self.path} is an empty file: all its runs are done again")
        try:
            return self._open_to_write()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if not _is_damage(error):
                raise
            return self._salvage(str(error))

    def _open_to_read(self) -> sqlite3.Connection:
        for mode in ("mode=ro", "immutable=1"):  # the second works on a read-only disk
            connection = _connect(f"file:{_quoted(self.path)}?{mode}")
            try:
                if not self._has_tables(connection):
                    raise StoreError(f"{self.path} is empty: run the study again")
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                connection.close()
                if _is_damage(error):
                    raise StoreError(f"{self.path}: {error}; {REPAIR}") from None
                reason = error
            except BaseException:
                connection.close()
                raise
            else:
                wal = Path(f"{self.path}-wal")
                if mode != "mode=ro" and wal.is_file() and wal.stat().st_size:
                    self._warn(f"the latest runs may be missing: cannot read {wal}")
                return connection
        raise reason

    def _open_to_write(self) -> sqlite3.Connection:
        connection = _connect(f"file:{_quoted(self.path)}")
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            self._has_tables(connection)
            if new := "".join(_SCRIPTS[_SCHEMAS.index(_schema(connection)) :]):
                connection.executescript(f"BEGIN; {new} PRAGMA user_version={FORMAT}; COMMIT;")
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(found)
        except BaseException:
            connection.close()
            raise
        return connection

    def _has_tables(self, connection: sqlite3.Connection) -> bool:
        """Whether all tables are there, or none. Anything else is damage."""
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > FORMAT:
            raise StoreError(f"{self.path} was written by a newer blockmdp: upgrade to use it")
        schema = _schema(connection)
        if schema not in _SCHEMAS:
            raise sqlite3.DatabaseError("its tables are not those of a store")
        if schema and 0 < version < 2:
            raise StoreError(f"{self.path} was written by an older blockmdp: choose another --out")
        return bool(schema)

    def _salvage(self, damage: str) -> sqlite3.Connection:
        """Copy the readable rows of a damaged file into a new one."""
        damaged = self._unused_name()
        _rename(self.path, damaged)
        try:
            new = self._open_to_write()
            mode = "mode=ro" if Path(f"{damaged}-wal").exists() else "immutable=1"
            with contextlib.closing(_connect(f"file:{_quoted(damaged)}?{mode}")) as old, new:
                blocks = 2 + damaged.stat().st_size // 2**16
                kept = {table: _copy(table, old, new, blocks) for table in _COLUMNS}["runs"]
        except BaseException:
            _rename(damaged, self.path)
            raise
        self._warn(
            f"{self.path} was damaged ({damage}): {kept} runs were readable and are kept, "
            f"the others are done again; the damaged file is now {damaged.name}"
        )
        return new

    def _unused_name(self) -> Path:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        names = (self.directory / f"{FILE}.damaged-{stamp}-{n}" for n in itertools.count())
        return next(name for name in names if not name.exists())

    # --- writing ----------------------------------------------------------------------------------
    def announce(self, **more: Any) -> None:
        """Write down what this process does, for `driver_of`."""
        assert self._lock is not None
        self._lock.announce(**more)

    def register(self, plan: Plan) -> None:
        """Store the plan of a study, so that `status` knows which runs are missing."""
        row = (plan.name, plan.to_json(), plan.folder, time.time())
        with self._writing():
            self._insert("studies", row, replace=True)
            for setting in plan.settings:
                self._insert("settings", (setting.key, setting.content))

    def add(self, run: Run, outcome: Outcome) -> None:
        """Store a run. It replaces the same run if that failed, but never a finished one.

        It is on the disk at the next `settle`, if that comes COMMIT_EVERY seconds after the last
        commit, and at the latest when the store is closed.
        """
        o = outcome
        ledger, environment = json.dumps(o.ledger), json.dumps(o.environment)
        row = (
            *(run.key, run.setting.key, run.seed, o.error, o.average, o.final, o.solved_at),
            *(o.trajectories, ledger, o.seconds, time.time(), environment),
        )
        with self._adding() as connection:
            connection.execute("DELETE FROM runs WHERE key=? AND error IS NOT NULL", row[:1])
            self._insert("runs", row)
            if o.error is None:
                self._insert("curves", (row[0], o.curve))
                self._insert("exact", (row[0], o.optimal, o.value, o.values))
                if o.decoding:
                    self._insert("decoding", (row[0], o.accuracy, o.decoding))
        self.settle()

    def settle(self) -> None:
        """Commit the runs that were added, unless the last commit was a moment ago.

        A commit waits for the disk, which takes longer than a tiny run. If this process is killed,
        only runs that were not committed are lost.
        """
        if time.monotonic() - self._committed >= COMMIT_EVERY:
            self._commit()

    def _commit(self) -> None:
        if self._connection.in_transaction:
            with self._writing():
                pass
            self._committed = time.monotonic()

    @contextlib.contextmanager
    def _adding(self) -> Iterator[sqlite3.Connection]:
        """Write all rows of a run or none, in a transaction that stays open for the next run."""
        connection = self._connection
        try:
            if not connection.in_transaction:
                connection.execute("BEGIN")
            connection.execute("SAVEPOINT run")
            try:
                yield connection
            except BaseException:  # also an interrupt
                if connection.in_transaction:  # on a full disk, SQLite has rolled back all of it
                    connection.execute("ROLLBACK TO run")
                raise
            finally:
                if connection.in_transaction:
                    connection.execute("RELEASE run")
        except sqlite3.Error as error:
            raise StoreError(f"cannot write to {self.path}: {error}") from None

    def add_optimum(self, run: Run, optimal: float | None) -> None:
        """Store the optimal value of a run that an earlier version did without it."""
        with self._writing():
            self._insert("exact", (run.key, optimal, None, b""))

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
        """Delete rows that do not match their checksum, and runs without a curve.

        Returns
        -------
        int
            Number of runs that were deleted.
        """

        def damaged(table: str) -> list[tuple[int, str]]:
            rows = self._select(f"SELECT rowid, {_names(table)} FROM {table}")
            return [(n, row[0]) for n, *row, checksum in rows if _checksum(row) != checksum]

        with self._writing() as connection:
            bad = {table: damaged(table) for table in _COLUMNS}
            for table, found in bad.items():
                connection.executemany(
                    f"DELETE FROM {table} WHERE rowid=?", [(n,) for n, _ in found]
                )
            keys = [(key,) for _, key in bad["exact"] + bad["decoding"]]
            inexact = connection.executemany("DELETE FROM runs WHERE key=?", keys).rowcount
            finished = "FROM runs WHERE error IS NULL"
            bare = connection.execute(f"DELETE {finished} AND key NOT IN (SELECT key FROM curves)")
            for table in ("curves", "exact", "decoding"):
                connection.execute(f"DELETE FROM {table} WHERE key NOT IN (SELECT key {finished})")
        runs = len(bad["runs"]) + max(inexact, 0) + bare.rowcount
        others = len(bad["settings"] + bad["studies"])
        if runs:
            self._warn(f"{self.path}: deleted {runs} damaged runs, which are done again")
        if others:
            self._warn(f"{self.path}: deleted {others} damaged descriptions of studies or settings")
        return runs

    # --- reading ----------------------------------------------------------------------------------
    def done(self) -> set[str]:
        """Return the keys of all finished runs."""
        return {key for (key,) in self._select("SELECT key FROM runs WHERE error IS NULL")}

    def failed(self) -> set[str]:
        """Return the keys of all failed runs."""
        return {key for (key,) in self._select("SELECT key FROM runs WHERE error IS NOT NULL")}

    def rows(self, exact: bool = True) -> list[Row]:
        """Return all runs that match their checksum, and warn about the others.

        exact: whether to read optimal and final values and accuracies too.
        """
        known = {row[0]: row[1:3] for row in self._good("exact")} if exact else {}
        decoders = {row[0]: row[1:2] for row in self._good("decoding")} if exact else {}
        return [
            Row._make(row + known.get(row[0], (None, None)) + decoders.get(row[0], (None,)))
            for row in self._good("runs")
        ]

    def curves(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the curves of some runs by key, and warn about those that are damaged."""
        wanted = set(keys)
        curves = {
            key: curve
            for key, curve, checksum in self._rows("curves")
            if key in wanted and _checksum((key, curve)) == checksum
        }
        if len(curves) < len(wanted):
            self._warn_left_out(len(wanted) - len(curves), "curves")
        return curves

    def values(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values along some runs by key, for those that have any."""
        along = {row[0]: row[3] for row in self._good("exact") if row[3]}
        return {key: along[key] for key in keys if key in along}

    def decoding(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the accuracies of the decoders of some runs by key, for those that have any."""
        levels = {row[0]: row[2] for row in self._good("decoding")}
        return {key: levels[key] for key in keys if key in levels}

    def with_optimum(self) -> set[str]:
        """Return the keys of all runs whose optimal value is known, or known to be unknown."""
        return {row[0] for row in self._good("exact")}

    def _good(self, table: str) -> list[tuple[Any, ...]]:
        """Return the rows of a table that match their checksum and are sound, and warn about bad
        ones. Stores of earlier versions do not have all tables.
        """
        if table not in {name for _, name, *_ in _schema(self._connection)}:
            return []
        rows = self._all(table)
        good = [row[:-1] for row in rows if _checksum(row[:-1]) == row[-1]]
        if good and not _are_sound(table, zip(*good)):  # all at once, in a quarter of the time
            good = [row for row in good if _are_sound(table, zip(row))]
        if len(good) < len(rows):
            what = {"exact": "exact values", "decoding": "accuracies"}.get(table, table)
            self._warn_left_out(len(rows) - len(good), what)
        return good

    def names(self) -> list[str]:
        """Return the names of all studies, the one that was run last at the end."""
        return [row[0] for row in self._latest_last()]

    def plan(self, name: str | None = None) -> Plan:
        """Return the plan of the study with this name, or of the study that was run last."""
        latest_last = self._latest_last()
        found = [row for row in latest_last if name in (None, row[0])]
        if not found:
            names = ", ".join(row[0] for row in latest_last)
            raise StoreError(f"{self.path} has no study {name!r}; it has {names}")
        name, text, folder, *_ = found[-1]
        return Plan.from_json(text, name, folder)

    def _latest_last(self) -> list[tuple[Any, ...]]:
        rows = (row for row in self._rows("studies") if _checksum(row[:-1]) == row[-1])
        latest_last = sorted(rows, key=lambda row: row[3])
        if not latest_last:
            raise StoreError(f"{self.path} has no study: run it again")
        return latest_last

    def _warn_left_out(self, n: int, what: str) -> None:
        self._warn(f"{self.path}: {n} damaged {what} are left out; {REPAIR}")

    def _rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        return self._select(f"SELECT {_names(table)} FROM {table}")

    def _all(self, table: str) -> list[tuple[Any, ...]]:
        """Return all rows of a table, in two thirds of the time if all its text is undamaged."""
        self._connection.text_factory = str
        try:
            return self._connection.execute(f"SELECT {_names(table)} FROM {table}").fetchall()
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            self._connection.text_factory = _decoded
            return list(self._rows(table))
        finally:
            self._connection.text_factory = _decoded

    def _select(self, query: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(query)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            hint = f"; {REPAIR}" if _is_damage(error) else ""
            raise StoreError(f"{self.path}: {error}{hint}") from None


# --- SQLite ---------------------------------------------------------------------------------------
def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=30.0)
    connection.text_factory = _decoded
    return connection


def _decoded(data: bytes) -> str:
    """Return stored text. Damaged text must be found by its checksum, not raise an exception."""
    return data.decode(errors="replace")


def _schema(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


_SCRIPTS = (_TABLES, _EXACT, _DECODING)  # each version has added one
_SCHEMAS: list[set[tuple[str, ...]]] = [set()]  # after each of them
with contextlib.closing(sqlite3.connect(":memory:")) as _memory:
    for _script in _SCRIPTS:
        _memory.executescript(_script)
        _SCHEMAS.append(_schema(_memory))


def _names(table: str) -> str:
    return ", ".join((*_COLUMNS[table], "checksum"))


def _into(table: str) -> str:
    marks = ", ".join("?" * (len(_COLUMNS[table]) + 1))
    return f"INTO {table} ({_names(table)}) VALUES ({marks})"


def _rename(old: Path, new: Path) -> None:
    """Rename a database and the files that SQLite keeps next to it. Overwrite what is there."""
    for ending in ("-shm", "-wal", ""):
        Path(f"{new}{ending}").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            Path(f"{old}{ending}").rename(f"{new}{ending}")


def _quoted(path: Path) -> str:
    return str(path.resolve()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _is_damage(error: Exception) -> bool:
    """Whether the file is damaged, rather than the disk full or the file read-only."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # our own errors have none
    return code & 0xFF in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _copy(table: str, old: sqlite3.Connection, new: sqlite3.Connection, blocks: int) -> int:
    """Copy the rows of a damaged table that match their checksums, and return their number."""
    insert = f"INSERT OR IGNORE {_into(table)}"
    good = (row for row in _readable(table, old, blocks) if _checksum(row[:-1]) == row[-1])
    return sum(new.execute(insert, row).rowcount for row in good)


def _readable(table: str, connection: sqlite3.Connection, blocks: int) -> Iterator[tuple[Any, ...]]:
    """Yield the readable rows of a damaged table.

    SQLite numbers rows in order. Read them in blocks of numbers, and stop after `blocks` blocks
    without a row.
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
        return  # the table itself is lost
    empty = 0
    for start in itertools.count(1, BLOCK):
        rows = between(start, start + BLOCK)
        yield from rows
        empty = 0 if rows else empty + 1
        if empty == blocks:
            return


def _as_stored(value: Any) -> Any:
    """Return a value as SQLite gives it back: it has no NaN, no -0.0 and only valid UTF-8."""
    if isinstance(value, float):
        return None if value != value else value + 0.0
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _are_sound(table: str, columns: Iterable[Sequence[Any]]) -> bool:
    """Whether rows could have been written by `Store.add`; a stranger may have computed the
    checksums.
    """
    by_name = dict(zip(_COLUMNS[table], columns))
    return (
        all(set(map(type, by_name[name])) <= allowed for name, allowed in _TYPES[table].items())
        and all(math.isfinite(x) for name in _FINITE & by_name.keys() for x in by_name[name])
        and all(_is_table(text, int) for text in set(by_name.get("ledger", ())))
        and all(_is_table(text, str) for text in set(by_name.get("environment", ())))
    )


_TEXT: set[type] = {str}
_NUMBER: set[type] = {float, int}
_INTEGER: set[type] = {int}
_NONE: set[type] = {type(None)}
_BYTES: set[type] = {bytes}
_TYPES: dict[str, dict[str, set[type]]] = {
    "runs": {
        **dict.fromkeys(("key", "setting", "ledger", "environment"), _TEXT),
        **dict.fromkeys(("seed", "trajectories"), _INTEGER),
        **dict.fromkeys(("average", "final"), _NUMBER | _NONE),
        **dict.fromkeys(("seconds", "finished"), _NUMBER),
        "error": _TEXT | _NONE,
        "solved_at": _INTEGER | _NONE,
    },
    "exact": {
        **dict.fromkeys(("optimal", "value"), _NUMBER | _NONE),
        "key": _TEXT,
        '"values"': _BYTES,
    },
    "decoding": {"key": _TEXT, "accuracy": _NUMBER | _NONE, "levels": _BYTES},
}
_FINITE = {"seconds", "finished"}


@functools.lru_cache(maxsize=1024)
def _is_table(text: str, of: type) -> bool:
    """Whether a text is a table in JSON, with values of a type."""
    try:
        table = json.loads(text)
    except ValueError:
        return False
    return isinstance(table, dict) and all(type(value) is of for value in table.values())


def _checksum(row: Iterable[Any]) -> str:
    digest = _DIGEST.copy()
    digest.update(marshal.dumps(tuple(row), 0))  # version 0: equal values give equal bytes
    return digest.hexdigest()


_DIGEST = hashlib.blake2b(digest_size=8)  # a copy is made faster
