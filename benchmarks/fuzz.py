"""`make fuzz`: damaged copies of every kind of file that evarl reads, through the loader that reads it.

Each must end in an error of ours, on one line, or in what the whole file holds. A file whose checksums were made to fit may
also be another valid file, if what was loaded is what it says. Nothing else may happen: no other exception, no warning, no
long wait, and nothing that a file says may be executed.
"""

import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro

from benchmarks.loaders import MODULE, Kind, kinds_of, make_files, same
from benchmarks.mutations import BYTES, Rng, pickled
from evarl.errors import EvarlError

SECONDS = 5.0
"""Of processor time for one file, so that a busy machine is no failure."""
LONGEST = 2000
"""Characters of an error, paths included."""
OUTCOMES = ("errors", "identical", "valid changes", "failures")


class Result(NamedTuple):
    """What became of one file."""

    kind: str
    number: int
    mutation: str
    outcome: str
    said: str


class Mutant(NamedTuple):
    """A damaged copy."""

    mutation: str
    data: bytes
    valid: bool
    """Whether it may be a valid file."""


class TookTooLong(BaseException):
    """No loader catches this."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Interrupt what goes on for longer, by a clock that nobody else uses."""

    def stop(number: int, frame: Any) -> None:
        raise TookTooLong(f"took more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Let the payload be found by whoever imports it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(MODULE, None)


def mutant(kind: Kind, whole: bytes, rng: Rng, marker: Path) -> Mutant:
    """Damage of a random kind."""
    part = rng.random()
    if part < 0.02:
        return Mutant("a pickled object alone", pickled(marker), False)
    if part < 0.5:
        name = list(BYTES)[int(rng.integers(len(BYTES)))]
        return Mutant(name, BYTES[name](rng, whole), False)
    return Mutant(*kind.damage(rng, whole), True)


def outcome(kind: Kind, original: Any, damaged: Mutant) -> tuple[str, str]:
    """Load the file as it is now, and judge."""
    try:
        with limited(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", DeprecationWarning)  # of Gymnasium, about its own worlds
            found = kind.load(kind.file)
    except EvarlError as error:
        clean = str(error).isprintable() and 0 < len(str(error)) < LONGEST
        return ("errors", str(error)) if clean else ("failures", f"not one clean line: {str(error)[:200]!r}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever it is, it should not have come this far
        return "failures", f"{type(error).__name__}: {str(error)[:200]!r}"
    if same(found, original):
        return "identical", ""
    try:
        allowed = damaged.valid and kind.allowed(found, damaged.data)
    except Exception as error:
        return "failures", f"was loaded, though it cannot be read ({type(error).__name__}: {str(error)[:100]!r})"
    return ("valid changes", "") if allowed else ("failures", f"was loaded as something else: {str(found)[:100]!r}")


def fuzz(
    kinds: Sequence[Kind], marker: Path, numbers: range, seed: int, tell: Callable[[Result], None] = lambda result: None
) -> list[Result]:
    """Damage files in turn, one for each number; number and seed decide all that is random."""
    whole = {kind.name: kind.file.read_bytes() for kind in kinds}
    original = {kind.name: kind.load(kind.file) for kind in kinds}
    results = []
    for number in numbers:
        kind = kinds[number % len(kinds)]
        damaged = mutant(kind, whole[kind.name], np.random.default_rng([seed, number]), marker)
        kind.file.write_bytes(damaged.data)
        try:
            found, said = outcome(kind, original[kind.name], damaged)
        finally:
            kind.file.write_bytes(whole[kind.name])
        if marker.exists():
            marker.unlink()
            found, said = "failures", "what is in the file was executed"
        results.append(Result(kind.name, number, damaged.mutation, found, said))
        tell(results[-1])
    return results


def table(results: Sequence[Result]) -> str:
    """What became of how many files of each kind."""
    counts = Counter((result.kind, result.outcome) for result in results)
    rows = {
        kind: [counts[kind, name] for name in OUTCOMES] for kind in dict.fromkeys(result.kind for result in results)
    }
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    lines = [f"{'kind':20}{'files':>8}" + "".join(f"{name:>15}" for name in OUTCOMES)]
    lines += [f"{kind:20}{sum(row):8}" + "".join(f"{count:15}" for count in row) for kind, row in rows.items()]
    return "\n".join(lines)


def main(files: int = 10_000, seed: int = 0, first: int = 0) -> None:
    """Damage files and print what became of them; the exit code is 1 if anything else happened than may.

    Args:
        files: how many.
        seed: of the damage.
        first: number of the first file; with `--files 1` one damage is done again.
    """

    def tell(result: Result) -> None:
        if result.outcome == "failures":
            again = f"--seed {seed} --first {result.number} --files 1"
            print(f"{result.kind}, {result.mutation}: {result.said} (again with {again})")

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, importable(Path(name)):
        folder, marker = Path(name), Path(name) / "executed"
        kinds = kinds_of(folder, make_files(folder, marker), marker)
        ready = time.monotonic()
        results = fuzz(kinds, marker, range(first, first + files), seed, tell)
    print(table(results))
    print(f"{ready - began:.0f} s for the files, {time.monotonic() - ready:.0f} s for {files} damaged ones")
    sys.exit(any(result.outcome == "failures" for result in results))


if __name__ == "__main__":
    tyro.cli(main)
