"""Metrics of a run: one row per update and seed, in one Parquet file that pandas and polars open directly."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evarl.errors import FileError
from evarl.storage.files import check_regular, reason, write_atomically

LARGEST = 2 * 2**30
"""Bytes of a table, in the file and in memory; one that is larger is none of ours."""


class MetricsTable:
    """Rows in the order in which they were produced: group of seeds, update, seed."""

    def __init__(self, table: pa.Table | None = None):
        self._parts: list[pa.Table] = [] if table is None else [table]

    def add(self, first_update: int, steps_per_update: int, seeds: list[int], columns: dict[str, np.ndarray]) -> None:
        """Append columns of shape [updates, seeds]."""
        count = next(iter(columns.values())).shape[0]
        update = np.repeat(np.arange(first_update, first_update + count, dtype=np.int64), len(seeds))
        rows = {
            "update": update,
            "steps": (update + 1) * steps_per_update,
            "seed": np.tile(np.asarray(seeds, np.int64), count),
        }
        # what has no value, such as the return when no episode finished, is null
        values = {name: pa.array(x.reshape(-1), from_pandas=True) for name, x in sorted(columns.items())}
        self._parts.append(pa.table(rows | values))

    def keep_before(self, seeds: list[int], update: int) -> None:
        """Forget the rows of these seeds from `update` on: they will be computed again, identically."""
        if not self._parts:
            return
        table = self.table()
        again = np.isin(table["seed"].to_numpy(), seeds) & (table["update"].to_numpy() >= update)
        self._parts = [table.filter(pa.array(~again))]

    def table(self) -> pa.Table:
        """All rows as an Arrow table."""
        return pa.concat_tables(self._parts).combine_chunks()

    def write(self, path: Path) -> None:
        """Replace the file at `path`."""
        table = self.table()
        write_atomically(path, lambda file: pq.write_table(table, file))

    @classmethod
    def read(cls, path: Path) -> "MetricsTable":
        """Read a file back; an empty table when there is none yet."""
        if not os.path.lexists(path):
            return cls()
        check_regular(path, LARGEST)
        try:
            data = pa.memory_map(str(path))
            found = pq.read_metadata(data)
            if found.num_rows * found.num_columns * 8 > LARGEST:  # equal values take next to no room in the file
                raise FileError(f"{path}: corrupt (it says that it holds {found.num_rows} rows)")
            table = pq.read_table(data)
            table.validate(full=True)
            table.column_names  # noqa: B018 — raises where they are no text
            return cls(table)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise FileError(f"{path}: corrupt or truncated ({reason(error)})") from error
