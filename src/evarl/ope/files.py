"""Logs in files of other programs: CSV, Parquet, NPZ and HDF5, and in Minari's store. Nothing in a file is executed."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from evarl.errors import FileError, InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.flat import D4RL, MissingFinal
from evarl.ope.minari import from_minari
from evarl.ope.tables import table_fields
from evarl.settings import conforming
from evarl.storage.files import check_regular, reason

LARGEST = 8 * 2**30
"""Maximum accepted size of a file in bytes."""
MINARI = "minari:"
"""Prefix of the id of a Minari data set, in place of a path."""


def read(
    path: str | Path, missing_final: MissingFinal = "repeat", log_prob: str | None = None, first_action: int = 0
) -> LoggedData:
    """Logged data from a file, whose name says what it is, or "minari:ID" for a Minari data set on this machine.

        .csv, .parquet     a row for each step: episode, step, observation_0 …, action (or action_0 …), reward, terminated,
                           truncated, log_prob
        .npz, .hdf5, .h5   D4RL's flat arrays (`LoggedData.from_flat`), or in .npz the fields of `LoggedData.from_arrays`
        .safetensors       written by `LoggedData.save`

    In tables, `step`, `terminated`, `truncated` and `log_prob` may be missing, and `next_observation_0 …` given. A last row of an
    episode without action and reward holds its final observation. `missing_final` is what is done without one, as in `from_flat`.
    `log_prob` is the name of log-probabilities among the `infos` of a Minari data set. Discrete actions in the file count from
    `first_action`, in the data from 0.
    """
    conforming("path", path, str | Path)
    first_action = conforming("first-action", first_action, int)
    data = _read(path, missing_final, conforming("log-prob", log_prob, str | None))
    return _from_zero(data, first_action) if first_action else data


def _from_zero(data: LoggedData, first: int) -> LoggedData:
    """The data with discrete actions that count from 0 where those given count from `first`."""
    if not data.discrete:
        raise InputError(f"first-action: {first} is not allowed, since actions are continuous; must be left out")
    mask, action = np.asarray(data.mask), np.asarray(data.action)
    if (least := int(action[mask].min())) < first:
        raise InputError(f"first-action: {first} is not allowed; must be at most {least}, which the log has")
    return data.replace(action=np.where(mask, action - np.asarray(first, action.dtype), 0))


def _read(path: str | Path, missing_final: MissingFinal, log_prob: str | None) -> LoggedData:
    if str(path).startswith(MINARI):
        return from_minari(str(path).removeprefix(MINARI), log_prob)
    if log_prob is not None:
        raise InputError(f"log-prob: '{log_prob}' is allowed for Minari data sets only; columns are named log_prob")
    path = Path(path)
    if (reader := READERS.get(path.suffix.lower())) is None:
        raise InputError(f"{path}: unknown kind of file; must end in {', '.join(READERS)}, or be {MINARI}ID")
    check_regular(path, LARGEST)
    try:
        return reader(path, missing_final)
    except FileError:
        raise
    except InputError as error:
        raise FileError(f"{path}: {error}") from error


def _csv(path: Path, missing_final: MissingFinal) -> LoggedData:
    try:
        with pa_csv.open_csv(path) as peek:
            kinds = dict.fromkeys(peek.schema.names, pa.string())
        convert = pa_csv.ConvertOptions(column_types=kinds, strings_can_be_null=True, quoted_strings_can_be_null=True)
        table = pa_csv.read_csv(path, convert_options=convert)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be read as CSV ({reason(error)})") from error
    return LoggedData.from_arrays(**table_fields(table, missing_final))


def _parquet(path: Path, missing_final: MissingFinal) -> LoggedData:
    try:
        table = pa_parquet.read_table(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be read as Parquet ({reason(error)})") from error
    return LoggedData.from_arrays(**table_fields(table, missing_final))


def _npz(path: Path, missing_final: MissingFinal) -> LoggedData:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise FileError(f"{path}: cannot be read as NPZ without executing code ({reason(error)})") from error
    if "reward" in arrays and "rewards" not in arrays:
        return LoggedData.from_arrays(**arrays)
    return LoggedData.from_flat(arrays, missing_final)


def _hdf5(path: Path, missing_final: MissingFinal) -> LoggedData:
    try:
        import h5py
    except ImportError as error:
        raise InputError("h5py: is not installed; install it with: pip install 'evarl[hdf5]'") from error
    arrays: dict[str, Any] = {}
    try:
        with h5py.File(path, "r") as file:
            arrays.update((name, np.empty(0)) for name in file)
            for name in D4RL:
                if isinstance(file.get(name), h5py.Dataset):
                    arrays[name] = file[name][()]
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise FileError(f"{path}: cannot be read as HDF5 ({reason(error)})") from error
    return LoggedData.from_flat(arrays, missing_final)


def _own(path: Path, missing_final: MissingFinal) -> LoggedData:
    return LoggedData.load(path)


READERS: dict[str, Callable[[Path, MissingFinal], LoggedData]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".npz": _npz,
    ".hdf5": _hdf5,
    ".h5": _hdf5,
    ".safetensors": _own,
}
"""Readers by the ending of a file's name."""
