"""Ctrl-C and SIGTERM, without a traceback.

A command ends at once where nothing has to be put in order, as while modules are imported: C code that an exception comes
through there prints it. Where there is something to save or to stop, the first signal is obeyed in good order, those right
after it change nothing, and a later one ends the process: who presses Ctrl-C twice loses nothing, who insists gets out.
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
"""Seconds during which signals after the first are ignored."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INSISTED = "stopped at once; what was saved before is kept"


class Stopped(KeyboardInterrupt):
    """Asked to stop by a signal; what has been saved is in the message."""

    def __init__(self, message: str = "stopped", number: int = signal.SIGINT):
        super().__init__(message)
        self.number = number

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number


class _Asked:
    """The first signal of this process: its number, and when it came."""

    number: int | None = None
    when = 0.0

    def note(self, number: int) -> bool:
        """Whether it is the first."""
        if self.number is not None:
            return False
        self.number, self.when = number, time.monotonic()
        return True

    def patient(self) -> bool:
        return time.monotonic() - self.when < PATIENCE


_asked = _Asked()


def catch() -> None:
    """For a command: end at the first signal."""
    for number in SIGNALS:
        signal.signal(number, _end)
    sys.unraisablehook = _unraisable
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading,), daemon=True).start()


def _watch(reading: int) -> None:
    """End the process where Python cannot handle signals, as inside of a compiled program that takes for ever."""
    seen = _Asked()
    while True:
        number = os.read(reading, 1)[0]
        if number not in SIGNALS:
            continue
        at_once = signal.getsignal(number) is _end
        if at_once or not (seen.note(number) or seen.patient()):
            time.sleep(1.0)  # Python's own handler is nearly always quicker
            _at_once(number, "stopped" if at_once else INSISTED)


@contextmanager
def orderly() -> Iterator[None]:
    """In a command, raise `Stopped` at the first signal, for what must be put in order."""
    caught = signal.getsignal(signal.SIGINT) is _end
    for number in SIGNALS if caught else ():
        signal.signal(number, _raise)
    yield  # after an exception all is as before: what unwinds must not be cut short
    for number in SIGNALS if caught else ():
        signal.signal(number, _end)


def asked() -> Stopped | None:
    """What `orderly` has raised, if it was swallowed or turned into something else on the way."""
    return None if _asked.number is None else Stopped(number=_asked.number)


def leave(code: int) -> NoReturn:
    """Exit; a signal on the way out, when Python is being taken down, no longer changes the exit code."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


@contextmanager
def postponed() -> Iterator[Callable[[], Stopped | None]]:
    """Let a signal wait; yields a function that tells whether there was one. In other threads there is none."""
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
        with contextlib.suppress(RuntimeError, OSError):  # in the middle of printing, to somebody who has left
            sys.stdout.flush()
        _at_once(number, "stopped")


def _raise(number: int, frame: Any) -> None:
    if _asked.note(number):
        raise Stopped(number=number)
    if not _asked.patient():
        _at_once(number)


def _unraisable(arguments: Any) -> None:
    """Where Python cannot raise, as in the clean-up of an object, it would print a traceback and go on."""
    if isinstance(arguments.exc_value, KeyboardInterrupt):
        _at_once(_asked.number or signal.SIGINT)
    sys.__unraisablehook__(arguments)


def _at_once(number: int, message: str = INSISTED) -> NoReturn:
    shown = "\033[?25h" if os.isatty(2) else ""  # a progress bar hides the cursor
    os.write(2, f"{shown}evarl: {message}\n".encode())
    os._exit(128 + number)
