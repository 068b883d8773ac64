"""Logs as tables with one row for each step: columns of CSV and Parquet files, as arrays of trajectories."""

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int

from evarl.errors import InputError
from evarl.ope.flat import FLAGS, MissingFinal, check_names, trajectories_of

COLUMNS = ("episode", "step", "observation", "action", "reward", "terminated", "truncated", "log_prob")
"""Names of columns; those of several entries are observation_0, observation_1, … and action_0, …."""
ENTRY = re.compile(r"(observation|next_observation|action)_(\d+)")


def table_fields(table: pa.Table, missing_final: MissingFinal = "repeat") -> dict[str, Any]:
    """The fields of logged data, as arrays [N, T, ...], of a table with one row for each step.

    Rows are sorted by `step` if there is that column. A last row of an episode without action and reward holds its final
    observation.
    """
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"column {twice}: is there twice; must be there once")
    plain = [ENTRY.sub(r"\1", name) for name in names]
    try:
        check_names(
            plain, (*COLUMNS, "next_observation"), ("episode", "observation", "action", "reward"), "is no column"
        )
    except InputError as error:
        raise InputError(f"column {error}") from None
    if not table.num_rows:
        raise InputError("there are no rows; must be at least one step")
    order, episode = _order(table)
    empty = _empty(table)[order]
    starts = np.flatnonzero(np.diff(episode, prepend=-1))
    ends = np.append(starts[1:], len(episode)) - 1
    _check_empty(empty, starts, ends, order)
    steps = ~empty
    columns = {name: _entries(table, name, order, steps) for name in ("observation", "action")}
    columns["observation"], seen = columns["observation"][steps], columns["observation"]
    columns["action"] = columns["action"][steps]
    for name in ("reward", "log_prob", *FLAGS):
        if name in names:
            columns[name] = _column(table, name, order, steps, name in FLAGS)[steps]
    for name in FLAGS:
        columns.setdefault(name, np.zeros(int(steps.sum()), bool))
    lengths = ends - starts + 1 - empty[ends]
    last = np.cumsum(lengths) - 1
    _check_flags(columns, last, order[steps])
    final, known = seen[ends], empty[ends]
    if "next_observation" in plain:
        following = _entries(table, "next_observation", order, steps)[steps]
        if following.shape != columns["observation"].shape:
            raise InputError("columns next_observation: must be as many as those of observation")
        final, known = np.where(_like(known, final), final, following[last]), np.ones(len(known), bool)
    return trajectories_of(columns, lengths, final, known, missing_final)


def _order(table: pa.Table) -> tuple[Int[np.ndarray, " R"], Int[np.ndarray, " R"]]:
    """Rows in the order of their episodes and steps, and the number of each row's episode, by first appearance."""
    column = table.column("episode").combine_chunks()
    if (null := _nulls(column)).any():
        raise InputError(f"column episode: is empty in row {null.argmax() + 1}; must be a number or a name")
    codes = column.dictionary_encode()
    codes = codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes
    episode = np.asarray(codes.indices).astype(np.int64)
    rows = np.arange(len(episode))
    if "step" not in table.column_names:
        if (back := np.diff(episode) < 0).any():
            raise InputError(
                f"column episode: {column[int(back.argmax()) + 1].as_py()!r} in row {back.argmax() + 2} comes after rows of "
                "another episode; must be in one piece, or have a column step"
            )
        return rows, episode
    step = _column(table, "step", rows, np.ones(len(rows), bool))
    order = np.lexsort((step, episode))
    episode, step = episode[order], step[order]
    first = np.diff(episode, prepend=-1) != 0
    begin = step[np.flatnonzero(first)][np.cumsum(first) - 1]
    place = rows - np.flatnonzero(first)[np.cumsum(first) - 1]
    if (wrong := (step != begin + place) | ~np.isin(begin, (0, 1))).any():
        at = int(wrong.argmax())
        expected = int(begin[at] == 1) + place[at]
        raise InputError(
            f"column step: {step[at]:g} in row {order[at] + 1} is not allowed; must be {expected}, as "
            "steps of an episode are numbered 0, 1, 2, … (or 1, 2, 3, …), each once"
        )
    return order, episode


def _empty(table: pa.Table) -> Bool[np.ndarray, " R"]:
    """Rows without action and reward."""
    names = ["reward", *(name for name in table.column_names if name == "action" or name.startswith("action_"))]
    return np.logical_and.reduce([_nulls(table.column(name)) for name in names])


def _check_empty(
    empty: Bool[np.ndarray, " R"],
    starts: Int[np.ndarray, " N"],
    ends: Int[np.ndarray, " N"],
    order: Int[np.ndarray, " R"],
) -> None:
    """Raise InputError if a row without action and reward is not the last of several in its episode."""
    allowed = np.zeros(len(empty), bool)
    allowed[ends] = ends > starts
    if (wrong := empty & ~allowed).any():
        raise InputError(
            f"columns action and reward: are empty in row {order[wrong.argmax()] + 1}; may be so in the last row of an episode "
            "only, which holds its final observation"
        )


def _check_flags(columns: dict[str, np.ndarray], last: Int[np.ndarray, " N"], rows: Int[np.ndarray, " S"]) -> None:
    """Raise InputError if a flag is set before the last step of an episode."""
    inside = np.ones(len(rows), bool)
    inside[last] = False
    for name in FLAGS:
        if (early := columns[name] & inside).any():
            raise InputError(
                f"column {name}: is set in row {rows[early.argmax()] + 1}, after which the episode goes on; must be set at its "
                "last step only"
            )


def _entries(table: pa.Table, name: str, order: Int[np.ndarray, " R"], needed: Bool[np.ndarray, " R"]) -> np.ndarray:
    """The column of a name, [R], or its columns name_0, name_1, … as [R, entries].

    Whole numbers in a column `action` are discrete actions; the entries of action_0, … are those of continuous ones.
    """
    found = {
        int(match[2]): match[0] for match in map(ENTRY.fullmatch, table.column_names) if match and match[1] == name
    }
    needed = np.ones_like(needed) if name == "observation" else needed
    if name in table.column_names:
        if found:
            raise InputError(f"columns {name} and {found[min(found)]}: only one of them can be given")
        column = _column(table, name, order, needed)
        whole = name == "action" and (column == np.round(column)).all()
        return column.astype(np.int64) if whole else column
    for number in range(len(found)):
        if number not in found:
            raise InputError(f"column {name}_{number}: is missing; must be there, as {name}_{max(found)} is")
    columns = [_column(table, found[number], order, needed) for number in range(len(found))]
    entries = np.stack(columns, axis=1)
    return entries.astype(np.float64) if name == "action" else entries


def _column(
    table: pa.Table, name: str, order: Int[np.ndarray, " R"], needed: Bool[np.ndarray, " R"], flag: bool = False
) -> np.ndarray:
    """A column as numbers or flags in the order of rows; 0 where it is empty, which rows that are `needed` must not be."""
    column = table.column(name).combine_chunks()
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    null = _nulls(column)
    if (missing := null[order] & needed).any():
        raise InputError(
            f"column {name}: is empty in row {order[missing][0] + 1}; must be {'0 or 1' if flag else 'a number'}"
        )
    found = _numbers(name, column, null, flag)[order]
    wrong = ~np.isin(found, (0, 1)) if flag else ~np.isfinite(found)
    if (wrong & needed).any():
        at = int((wrong & needed).argmax())
        raise InputError(
            f"column {name}: {found[at]:g} in row {order[at] + 1} is not allowed; must be {'0 or 1' if flag else 'finite'}"
        )
    return found.astype(bool) if flag else found


def _numbers(name: str, column: pa.Array, null: Bool[np.ndarray, " R"], flag: bool) -> np.ndarray:
    """The numbers of a column, of which texts are read: as whole numbers if all are, 0 where it is empty."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.if_else(pa.array(null), None, pc.utf8_trim_whitespace(column))
        if flag:
            lower = pc.utf8_lower(column)
            column = pc.if_else(pc.equal(lower, "true"), "1", pc.if_else(pc.equal(lower, "false"), "0", column))
        for kind in (pa.int64(), pa.float64()):
            try:
                column = column.cast(kind)
                break
            except pa.ArrowInvalid:
                continue
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)):
        at, text = next((at, x) for at, x in enumerate(column.to_pylist()) if not _is_number(x))
        must = "0 or 1" if flag else "a number"
        raise InputError(f"column {name}: {str(text)!r:.60} in row {at + 1} is not allowed; must be {must}")
    return np.asarray(pc.fill_null(column, False if pa.types.is_boolean(column.type) else 0))


def _is_number(text: Any) -> bool:
    try:
        return text is None or (isinstance(text, str) and pa.scalar(text).cast(pa.float64()) is not None)
    except pa.ArrowInvalid:
        return False


def _nulls(column: Any) -> Bool[np.ndarray, " R"]:
    """Where a column is empty."""
    return np.asarray(pc.is_null(column))


def _like(chosen: Bool[np.ndarray, " N"], of: np.ndarray) -> Bool[np.ndarray, "N ..."]:
    """The choice with as many axes as `of`."""
    return chosen.reshape(-1, *[1] * (of.ndim - 1))
