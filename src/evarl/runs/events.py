"""TensorBoard events: every metric averaged over the seeds of a group."""

import warnings
from pathlib import Path

import numpy as np

from evarl.errors import FileError
from evarl.storage.files import reason


class EventWriter:
    """Writes TensorBoard events; those from `first_update` on that an interrupted run has left are purged."""

    def __init__(self, folder: Path, first_update: int):
        from tensorboardX import SummaryWriter  # slow to import, and not needed for reading runs

        try:
            self._writer = SummaryWriter(logdir=str(folder), purge_step=first_update, flush_secs=3600)
        except OSError as error:
            raise FileError(f"{folder}: cannot be written ({reason(error)})") from error

    def add(self, first_update: int, columns: dict[str, np.ndarray]) -> None:
        """Add columns of shape [updates, seeds]; updates in which no episode finished have no return."""
        for name, values in columns.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the mean of an empty slice
                means = np.nanmean(values.astype(np.float64), axis=1)
            for offset in np.flatnonzero(np.isfinite(means)):
                self._writer.add_scalar(name, means[offset], first_update + int(offset))

    def flush(self) -> None:
        """Write what was added to the file."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
