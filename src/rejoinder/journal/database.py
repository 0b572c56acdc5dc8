"""The database behind the journal: one write connection, one read connection per thread.

SQLite runs in WAL mode with a full flush per commit, so that a committed transaction survives a
power cut. Reads never wait for the writer. Another database needs its own class here, and types
for the values of a ``RowsStatement``; the other statements are SQLAlchemy Core or standard SQL.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError
from sqlalchemy.pool import NullPool
from sqlalchemy.sql.compiler import SQLCompiler

from rejoinder.errors import JournalError
from rejoinder.paths import expanded

BUSY_MS = 5000
"""How long SQLite itself waits for another process's transaction."""
CHECKPOINT_PAGES = 16384
"""64 MiB of log: here a commit folds in what the checkpointer left and starts the log anew."""
ROWS_AT_ONCE = (32, 16, 8, 4, 2, 1)
"""How many rows one statement writes; any number of rows is made up of these."""
KEPT_STATEMENTS = 256
"""Compiled statements that a connection keeps: those of all these numbers and some more."""
OLDEST_SQLITE = (3, 33)
"""The first one that knows UPDATE with FROM."""


class Database:
    """Connections to one journal database. Safe to use from any thread."""

    def __init__(self, url: str) -> None:
        """Open no connection yet.

        Raises:
            JournalError: it is no URL of an SQLite file, the file is gone from beside its log, or
                this Python's SQLite is too old.
        """
        _refuse_old_sqlite()
        self.url = url
        self.path = database_file(url)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _create_private(self.path)
        self._file = _identity(self.path)
        self.lost: str | None = None
        """What has become of the file, once it is not in its place any more; see ``check_file``."""
        self.engine = sa.create_engine(
            f"sqlite:///{self.path}",
            poolclass=NullPool,
            connect_args={
                "check_same_thread": False,
                "timeout": BUSY_MS / 1000,
                "cached_statements": KEPT_STATEMENTS,
            },
        )
        sa.event.listen(self.engine, "connect", _prepare)
        self._local = threading.local()
        self._readers: list[Connection] = []
        self._lock = threading.Lock()

    def connect(self) -> Connection:
        """Open a connection of the caller's own, in autocommit until it says BEGIN.

        Raises:
            JournalError: the file is no journal, or no longer the one that this process opened.
        """
        self.check_file()
        try:
            return self.engine.connect()
        except DatabaseError as error:
            raise JournalError(
                f"{self.path} cannot be used as a journal: {error.orig}; correct journal.url or "
                "home, or the rights on that file"
            ) from error

    def check_file(self) -> None:
        """See whether the file that was opened is still in its place.

        What is written to one that was deleted is gone with the last process that has it open.

        Raises:
            JournalError: it is not; the message says what to do.
        """
        now = _identity(self.path)
        if self._file is None or now == self._file:
            self.lost = None
            return
        found = "another file has taken its place" if now else "it was deleted or moved away"
        self.lost = (
            f"the journal {self.path} is not the file any more that was opened at the start: "
            f"{found}. Nothing is recorded. Stop the system, put the journal back from a copy (or "
            "leave it away to begin a new one), and start again"
        )
        raise JournalError(self.lost)

    def reader(self) -> Connection:
        """Return this thread's read connection. Each statement sees the newest commit."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self.connect().execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql("PRAGMA query_only = 1")
            self._local.connection = connection
            with self._lock:
                self._readers.append(connection)
        return connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Give a connection on which all statements see the same commit.

        Raises:
            JournalError: the database cannot be read now.
        """
        try:
            with self.connect() as connection:
                run(connection, "BEGIN")
                yield connection
        except (DatabaseError, sqlite3.DatabaseError) as error:
            raise JournalError(f"{self.path} cannot be read: {error}") from error

    def close(self) -> None:
        """Close all read connections; the last connection of all folds the log into the file."""
        with self._lock:
            for connection in self._readers:
                connection.close()
            self._readers.clear()
        self._local = threading.local()
        self.engine.dispose()


class Query:
    """A query compiled once and run on the driver: no per-call cost of building SQL."""

    def __init__(self, clause: sa.sql.ClauseElement) -> None:
        compiled = clause.compile(dialect=sqlite.dialect())
        assert isinstance(compiled, SQLCompiler)
        self.sql = str(compiled)
        self.names: list[str] = list(compiled.positiontup or ())

    def fetch(self, connection: Connection, **values: Any) -> list[Any]:
        """Run a query and return its rows as tuples."""
        bound = [values[name] for name in self.names]
        return driver(connection).execute(self.sql, bound).fetchall()


class RowsStatement:
    """A write of many rows at once, run on the driver.

    With one statement per row SQLite would let go of the interpreter for each, and the thread would
    wait for it again and again while requests are served.
    """

    def __init__(
        self, text: str, columns: Sequence[str], rows_at_once: Sequence[int] = ROWS_AT_ONCE
    ) -> None:
        """Make one statement for each number of rows.

        Args:
            text: with ``{values}`` in the place of the rows behind VALUES, or ``{given}`` in that
                of a table of them, which is called ``given``.
            columns: of a row, in order; two or more.
            rows_at_once: numbers of rows, largest first, down to 1.
        """
        self._values_of = itemgetter(*columns)
        names, row = ", ".join(columns), f"({', '.join('?' * len(columns))})"
        self.texts: list[tuple[int, str]] = []
        """The statements by their numbers of rows, largest first."""
        for count in rows_at_once:
            values = ", ".join([row] * count)
            table = f"WITH given ({names}) AS (VALUES {values}) SELECT * FROM given"  # noqa: S608 - names
            given = f"({table}) AS given"
            self.texts.append((count, text.format(values=values, given=given)))

    def many(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> int:
        """Write rows; returns how many were changed in all.

        ``rows`` are dicts with a value for each column, of a kind that the driver takes (bytes,
        str, int, float, None).
        """
        execute = driver(connection).execute
        values = list(map(self._values_of, rows))
        changed = done = 0
        for count, text in self.texts:
            while len(values) - done >= count:
                some = values[done : done + count]
                changed += execute(text, [*chain(*some)]).rowcount
                done += count
        return changed


def driver(connection: Connection) -> sqlite3.Connection:
    """Return the driver's own connection, for what is done very often."""
    found = connection.connection.driver_connection
    assert isinstance(found, sqlite3.Connection)
    return found


def run(connection: Connection, statement: str) -> None:
    """Execute a statement without values on the driver, past SQLAlchemy's bookkeeping."""
    driver(connection).execute(statement)


def in_transaction(connection: Connection) -> bool:
    """Return whether a transaction is open on the driver's connection."""
    return driver(connection).in_transaction


def database_file(url: str) -> Path:
    """Return the file behind ``journal.url``.

    Raises:
        JournalError: it is no URL of an SQLite file.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise JournalError(f"journal.url {url!r} is not a database URL: {error}") from error
    if parsed.get_backend_name() != "sqlite":
        raise JournalError(
            f"journal.url names {parsed.get_backend_name()!r}; this version supports sqlite only: "
            "use sqlite:///path/to/journal.db"
        )
    if not parsed.database or parsed.database == ":memory:":
        raise JournalError("journal.url must name a file: several processes share the journal")
    return expanded(parsed.database).absolute()


def _refuse_old_sqlite() -> None:
    """Say at once what would fail with the first answer, as a fault of syntax."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise JournalError(
            f"this Python has SQLite {sqlite3.sqlite_version}, and the journal needs {needed} or "
            "newer: use another build of Python, such as one that uv installs"
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from every other one; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _create_private(path: Path) -> None:
    """Create a missing file for its owner only; SQLite gives its log the same rights.

    A file that is there is not even opened: closing it would drop this process's locks on it.
    """
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and not path.exists():
        raise JournalError(
            f"the journal {path} is gone, but its log {log.name} is there: another program may "
            "have it open. Stop the system and put the journal back from a copy; or delete the "
            "log, too, to begin a new one"
        )
    # One that cannot be made is told by the first connection.
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _prepare(connection: sqlite3.Connection, _record: object) -> None:
    """Set up one SQLite connection; BEGIN and COMMIT are always said explicitly."""
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    if not cursor.execute("PRAGMA page_count").fetchone()[0]:  # later it does nothing but wait
        cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")  # for a writer, whom readers pass by
    _set_wal(cursor)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = 1")
    cursor.execute("PRAGMA secure_delete = 1")  # what people delete is overwritten
    cursor.execute("PRAGMA cache_size = -65536")
    cursor.execute("PRAGMA temp_store = MEMORY")
    cursor.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    cursor.close()


def _set_wal(cursor: sqlite3.Cursor) -> None:
    """Switch to WAL; the busy timeout does not cover two processes that do so at once."""
    deadline = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
