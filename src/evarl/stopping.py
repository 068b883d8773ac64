"""Handling of Ctrl-C and SIGTERM without a traceback.

A command ends immediately where nothing has to be saved, for example while modules are imported. Where there is something
to save or to stop, the first signal starts that, signals in the next few seconds are ignored, and a later one ends the
process. So pressing Ctrl-C twice loses nothing, and pressing it again later always works.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

PATIENCE = 5.0
"""Seconds after the first signal during which others are ignored."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INSISTED = "stopped at once; what was saved before is kept"
"""Message when the process ends before it could save."""


class Stopped(KeyboardInterrupt):
    """A signal asked to stop; the message says what was saved."""

    def __init__(self, message: str = "stopped", number: int = signal.SIGINT):
        super().__init__(message)
        self.number = number

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number


class _Asked:
    """The first signal that came: its number and time."""

    number: int | None = None
    when = 0.0

    def note(self, number: int) -> bool:
        """Record a signal; True if it is the first."""
        if self.number is not None:
            return False
        self.number, self.when = number, time.monotonic()
        return True

    def patient(self) -> bool:
        """Whether the first signal came within the last PATIENCE seconds."""
        return time.monotonic() - self.when < PATIENCE


_asked = _Asked()


def catch() -> None:
    """Make this process end at the first signal; called by the command line."""
    for number in SIGNALS:
        signal.signal(number, _end)
    sys.unraisablehook = _unraisable
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading,), daemon=True).start()


def _watch(reading: int) -> None:
    """End the process where Python cannot handle signals, for example in a compiled program that does not return."""
    seen = _Asked()
    while True:
        number = os.read(reading, 1)[0]
        if number not in SIGNALS:
            continue
        at_once = signal.getsignal(number) is _end
        if at_once or not (seen.note(number) or seen.patient()):
            time.sleep(1.0)  # Python's own handler is usually quicker
            _at_once(number, "stopped" if at_once else INSISTED)


@contextmanager
def orderly() -> Iterator[None]:
    """Within a command, raise `Stopped` at the first signal instead of ending the process."""
    caught = signal.getsignal(signal.SIGINT) is _end
    for number in SIGNALS if caught else ():
        signal.signal(number, _raise)
    yield  # not in `finally`: after an exception, cleaning up must not be cut short
    for number in SIGNALS if caught else ():
        signal.signal(number, _end)


def asked() -> Stopped | None:
    """The exception that `orderly` has raised, if it was swallowed or replaced by another; None without a signal."""
    return None if _asked.number is None else Stopped(number=_asked.number)


def leave(code: int) -> NoReturn:
    """Exit with a code that signals during Python's shutdown no longer change."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


@contextmanager
def postponed() -> Iterator[Callable[[], Stopped | None]]:
    """Hold back signals; yields a function that returns the first one, or None (always None outside of the main thread)."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    seen = _Asked()

    def handle(number: int, frame: Any) -> None:
        _asked.note(number)
        if not seen.note(number) and not seen.patient():
            outer = previous[number]
            if not callable(outer):
                raise Stopped(number=number)
            outer(number, frame)

    previous: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, handle)
    try:
        yield lambda: None if seen.number is None else Stopped(number=seen.number)
    finally:
        for one, handler in previous.items():
            signal.signal(one, handler)


def _end(number: int, frame: Any) -> None:
    if _asked.note(number) or not _asked.patient():
        with contextlib.suppress(RuntimeError, OSError):  # while printing, or to a closed pipe
            sys.stdout.flush()
        _at_once(number, "stopped")


def _raise(number: int, frame: Any) -> None:
    if _asked.note(number):
        raise Stopped(number=number)
    if not _asked.patient():
        _at_once(number)


def _unraisable(arguments: Any) -> None:
    """End the process for a signal in a finaliser, where Python prints a traceback and continues."""
    if isinstance(arguments.exc_value, KeyboardInterrupt):
        _at_once(_asked.number or signal.SIGINT)
    sys.__unraisablehook__(arguments)


def _at_once(number: int, message: str = INSISTED) -> NoReturn:
    """Print a line and end the process without any clean-up."""
    shown = "\033[?25h" if os.isatty(2) else ""  # a progress bar hides the cursor
    os.write(2, f"{shown}evarl: {message}\n".encode())
    os._exit(128 + number)
