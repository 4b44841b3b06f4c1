"""Finished shards on disk, in SQLite, so that a study stopped at any moment resumes to the same bits."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from analysis.measure.estimate.accumulators import MAX_ORDER, Moments
from analysis.measure.run.shard import ShardResult
from analysis.vocabulary.numbers import shown
from analysis.vocabulary.versions import library_versions

_APPLICATION_ID = 0x6174_746E  # "attn", so that another program's database is recognised and left alone
_SCHEMA = 1
_COMMIT_EVERY = 0.2  # seconds; a kill loses at most the shards since, which are drawn again to the same bits
_HEADER = MAX_ORDER + 6


class Store:
    """
    A study's finished shards.

    Parameters
    ----------
    path : path-like
        Created if it does not exist.
    identity : mapping
        What the study is (seed, quantity, grid, ...). A store made for another one is refused, and the message names
        what differs.

    Raises
    ------
    ValueError
        If the file is no store, is damaged, or belongs to another study or other library versions.
    OSError
        If it cannot be opened or is in use.

    Warns
    -----
    RuntimeWarning
        At the end, if something could not be written: the study itself goes on.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"store must be the path of a file: got {shown(path)}")
        self.path = Path(path)
        if self.path.name in ("", ":memory:") or "\0" in str(self.path):
            raise ValueError(f"store must be the path of a file: got {shown(str(path))}")
        self.failure: str | None = None
        if self.path.is_dir() or not self.path.absolute().parent.is_dir():
            raise OSError(f"store {self.path} cannot be opened: it must be a file in a folder that exists")
        try:
            self._connection = sqlite3.connect(self.path, timeout=1.0, isolation_level=None)
            self._open(identity)
        except sqlite3.DatabaseError as error:
            self._abandon()
            raise _explained(self.path, error) from None
        except ValueError:
            self._abandon()
            raise
        self._last_commit = time.monotonic()

    def _open(self, identity: Mapping[str, Any]) -> None:
        run = self._connection.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA synchronous = NORMAL")
        run("BEGIN EXCLUSIVE")
        recorded = json.loads(json.dumps({**identity, "versions": library_versions()}, allow_nan=False))
        empty = run("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if empty and run("PRAGMA application_id").fetchone()[0] == 0:
            run(f"PRAGMA application_id = {_APPLICATION_ID}")
            run(f"PRAGMA user_version = {_SCHEMA}")
            run("CREATE TABLE study (identity TEXT NOT NULL)")
            run(
                "CREATE TABLE shards (cell TEXT, shard INTEGER, size INTEGER, checksum BLOB, result BLOB, "
                "PRIMARY KEY (cell, shard, size)) WITHOUT ROWID"
            )
            run("INSERT INTO study VALUES (?)", (json.dumps(recorded),))
        else:
            self._check(recorded)
        run("COMMIT")
        run("BEGIN")

    def _check(self, recorded: Mapping[str, Any]) -> None:
        run = self._connection.execute
        if run("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise ValueError(f"{self.path} is an SQLite database but not a study store: choose another file")
        if run("PRAGMA user_version").fetchone()[0] != _SCHEMA:
            raise ValueError(f"store {self.path} was written by another version of attnsym: choose another file")
        damage = run("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise ValueError(f"store {self.path} is damaged ({damage}): move it away and run again")
        try:
            stored = dict(json.loads(run("SELECT identity FROM study").fetchone()[0]))
        except (ValueError, TypeError):
            raise ValueError(
                f"store {self.path} is damaged (what study it holds): move it away and run again"
            ) from None
        differing = [key for key in sorted({*stored, *recorded}) if stored.get(key) != recorded.get(key)]
        if differing:
            details = "; ".join(
                f"{key} is {stored.get(key)!r} there and {recorded.get(key)!r} here" for key in differing
            )
            raise ValueError(f"store {self.path} belongs to another study: {details}")

    def get(self, cell: str, shard: int, size: int, *, with_values: bool) -> ShardResult | None:
        """Return a finished shard, or None; ValueError if what is stored is not what was written."""
        try:
            row = self._connection.execute(
                "SELECT checksum, result FROM shards WHERE cell = ? AND shard = ? AND size = ?", (cell, shard, size)
            ).fetchone()
        except sqlite3.DatabaseError as error:
            raise _explained(self.path, error) from None
        if row is None:
            return None
        if _checksum(cell, shard, size, row[1]) != row[0]:
            raise ValueError(f"store {self.path} is damaged (checksum of a shard): move it away and run again")
        result = _unpack(row[1])
        return None if with_values and result.values is None else result

    def put(self, cell: str, shard: int, size: int, result: ShardResult) -> None:
        """Keep a finished shard; on disk after at most a fifth of a second of further ones, or at the end."""
        blob = _pack(result)
        if self.failure is not None:
            return
        try:
            self._connection.execute(
                "INSERT OR REPLACE INTO shards VALUES (?, ?, ?, ?, ?)",
                (cell, shard, size, _checksum(cell, shard, size, blob), blob),
            )
            if time.monotonic() - self._last_commit > _COMMIT_EVERY:
                self._commit()
                self._connection.execute("BEGIN")
                self._last_commit = time.monotonic()
        except sqlite3.OperationalError as error:
            self._give_up(error)
        except sqlite3.DatabaseError as error:
            raise _explained(self.path, error) from None

    def _commit(self) -> None:
        """Write what was put since the last time; Ctrl-C may have come between a COMMIT and its BEGIN."""
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")

    def _give_up(self, error: sqlite3.Error) -> None:
        """Store nothing more, on a full disk say: what is computed is not lost for that, and `__exit__` says so."""
        self.failure = f"store {self.path} cannot be written ({error}): what it does not hold will be drawn again"
        try:
            self._commit()
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self._connection.rollback()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._commit()
        except sqlite3.Error as failed:
            self._give_up(failed)
        self._connection.close()
        if self.failure is not None:
            warnings.warn(self.failure, RuntimeWarning, stacklevel=2)

    def _abandon(self) -> None:
        if hasattr(self, "_connection"):
            self._connection.close()


def _explained(path: Path, error: sqlite3.DatabaseError) -> Exception:
    text = str(error)
    if "locked" in text:
        return OSError(f"store {path} is in use by another process")
    if isinstance(error, sqlite3.OperationalError) and "malformed" not in text:
        return OSError(f"store {path} cannot be used: {text}")
    return ValueError(f"store {path} is not a readable study store ({text}): move it away and run again")


def _checksum(cell: str, shard: int, size: int, blob: bytes) -> bytes:
    return hashlib.sha256(f"{cell}/{shard}/{size}/".encode() + blob).digest()[:16]


def _pack(result: ShardResult) -> bytes:
    """Write a result as little-endian float64: count, shift, offset, 9 sums, extremes, then the values if kept."""
    m = result.moments
    header = [float(m.count), m.shift, m.offset, *m.central, m.minimum, m.maximum]
    values = np.empty(0) if result.values is None else result.values
    return np.concatenate([header, values]).astype("<f8").tobytes()


def _unpack(blob: bytes) -> ShardResult:
    numbers = np.frombuffer(blob, dtype="<f8").astype(np.float64)
    head = [float(value) for value in numbers[:_HEADER]]
    moments = Moments(int(head[0]), head[1], head[2], tuple(head[3:-2]), head[-2], head[-1])
    return ShardResult(moments, numbers[_HEADER:] if numbers.size > _HEADER else None)
