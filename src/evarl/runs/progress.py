"""Progress of training, on standard error."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from evarl.errors import plain_text

PLAIN_SECONDS = 10.0
"""Time between two printed lines if standard error is not a terminal."""


COMPILING = "compiling"
"""What is shown until the first update is done."""


@contextmanager
def compiling(label: str, quiet: bool) -> Iterator[None]:
    """Tell that a program is being compiled: on a terminal as long as it takes, elsewhere by one line."""
    console = Console(stderr=True, quiet=quiet, soft_wrap=True)
    told = f"{plain_text(label)}: {COMPILING}"
    if console.is_terminal:
        with console.status(Text(told)):
            yield
        return
    console.print(told, markup=False, highlight=False)
    yield


class ProgressBar:
    """A progress bar on a terminal, a line now and then elsewhere, nothing if quiet."""

    def __init__(self, label: str, updates: int, quiet: bool):
        self._console = Console(stderr=True, quiet=quiet, soft_wrap=True)
        self._live = self._console.is_terminal and not quiet
        self._label, self.updates, self.done = plain_text(label), updates, 0
        self._printed = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f} updates"),
            TextColumn("{task.fields[speed]}"),
            TextColumn("{task.fields[result]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._live,
        )
        self._task = self._progress.add_task(self._label, total=updates, speed=COMPILING, result="")

    def __enter__(self) -> "ProgressBar":
        self._progress.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._progress.stop()

    def advance(self, updates: int, steps_per_second: float, mean_return: float) -> None:
        """Add updates, and show their speed and return."""
        self.done += updates
        speed, result = f"{steps_per_second:,.0f} steps/s", f"return {mean_return:.3g}"
        self._progress.update(self._task, completed=self.done, speed=speed, result=result)
        now = time.monotonic()
        if not self._live and (now - self._printed > PLAIN_SECONDS or self.done == self.updates):
            self._printed = now
            self._console.print(f"{self._label}: {self.done}/{self.updates} updates, {speed}, {result}", markup=False)

    def begin(self, label: str, done: int) -> None:
        """Count the updates of the next seeds, after those that an earlier session made."""
        self._label, self.done = plain_text(label), done
        self._progress.update(self._task, description=self._label, completed=done)

    def notify(self, message: str) -> None:
        """Print a line above the bar."""
        self._console.print(plain_text(message), markup=False, highlight=False)
