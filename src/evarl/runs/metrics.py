"""Metrics of a run: one row per update and seed in a Parquet file."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evarl.errors import FileError
from evarl.storage.files import check_regular, reason, write_atomically

LARGEST = 2 * 2**30
"""Maximum accepted size of a table in bytes, in the file and in memory."""


class MetricsTable:
    """Rows ordered by group of seeds, update and seed."""

    def __init__(self, table: pa.Table | None = None, path: Path | None = None):
        self._parts: list[pa.Table] = [] if table is None else [table]
        self._path = path

    def add(self, first_update: int, steps_per_update: int, seeds: list[int], columns: dict[str, np.ndarray]) -> None:
        """Append columns of shape [updates, seeds]."""
        count = next(iter(columns.values())).shape[0]
        update = np.repeat(np.arange(first_update, first_update + count, dtype=np.int64), len(seeds))
        rows = {
            "update": update,
            "steps": (update + 1) * steps_per_update,
            "seed": np.tile(np.asarray(seeds, np.int64), count),
        }
        # NaN, such as the return when no episode finished, becomes null
        values = {name: pa.array(x.reshape(-1), from_pandas=True) for name, x in sorted(columns.items())}
        table = pa.table(rows | values)
        if self._parts and not self._parts[0].schema.equals(table.schema):
            odd = sorted({*map(str, self._parts[0].schema)} ^ {*map(str, table.schema)})
            raise FileError(
                f"{self._path}: has other columns than training writes, first {' '.join(odd[0].split())!r:.80}"
            )
        self._parts.append(table)

    def keep_before(self, seeds: list[int], update: int) -> None:
        """Drop the rows of these seeds from `update` on, which will be computed again.

        FileError unless all rows before are there, each once and in order.
        """
        table = self.table() if self._parts else None
        number = {name: np.empty(0) if table is None else table[name].to_numpy() for name in ("update", "seed")}
        mine = np.isin(number["seed"], seeds)
        kept = mine & (number["update"] < update)
        wanted = np.repeat(np.arange(update), len(seeds)), np.tile(seeds, update)
        if not all(np.array_equal(number[name][kept], x) for name, x in zip(("update", "seed"), wanted, strict=True)):
            raise FileError(
                f"{self._path}: does not hold the updates 0 to {update - 1} of the seeds {seeds[0]} to {seeds[-1]}, which the "
                "checkpoint follows; without them the run must be trained again"
            )
        if table is not None:
            self._parts = [table.filter(pa.array(kept | ~mine))]

    def table(self) -> pa.Table:
        """All rows as an Arrow table."""
        return pa.concat_tables(self._parts).combine_chunks()

    def write(self, path: Path) -> None:
        """Replace the file at `path`."""
        table = self.table()
        write_atomically(path, lambda file: pq.write_table(table, file))

    @classmethod
    def read(cls, path: Path) -> "MetricsTable":
        """The table in a file; an empty one if there is no file."""
        if not os.path.lexists(path):
            return cls(path=path)
        check_regular(path, LARGEST)
        try:
            data = pa.memory_map(str(path))
            found = pq.read_metadata(data)
            if found.num_rows * found.num_columns * 8 > LARGEST:  # equal values take almost no space in the file
                raise FileError(f"{path}: corrupt (it says that it holds {found.num_rows} rows)")
            table = pq.read_table(data)
            table.validate(full=True)
            table.column_names  # noqa: B018 — raises if they are not text
        except (OSError, ValueError, pa.ArrowException) as error:
            raise FileError(f"{path}: corrupt or truncated ({reason(error)})") from error
        _check_columns(table, path)
        return cls(table, path)


def _check_columns(table: pa.Table, path: Path) -> None:
    """Raise FileError for a table that training did not write."""
    for name in ("update", "steps", "seed", "return"):
        if table.column_names.count(name) != 1:
            raise FileError(f"{path}: has {table.column_names.count(name)} columns called {name}; must have one")
    for name, column in zip(table.column_names, table.columns, strict=True):
        counted = name in ("update", "steps", "seed")
        if not (column.type == pa.int64() if counted else pa.types.is_primitive(column.type)):
            raise FileError(f"{path}: the column {name!r:.60} holds {column.type!s:.60}; must hold numbers")
        if counted and column.null_count:
            raise FileError(f"{path}: the column {name} has {column.null_count} rows without a number")
