"""`make fuzz`: damaged copies of every kind of file that evarl reads, through the loader that reads it.

Each must end in an error of ours, on one line, or in what the whole file holds. A file whose checksums were made to fit may
also be another valid file, if what was loaded is what it says. Nothing else may happen: no other exception, no warning, no
long wait, no memory without bounds, and nothing that a file says may be executed.

The files are loaded in a process of their own (`benchmarks.fuzz_worker`), which is watched from here.
"""

import json
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro

from benchmarks.loaders import Kind, make_files, same
from benchmarks.mutations import BYTES, MODULE, SPECIAL, Rng, pickled
from evarl.errors import EvarlError

SECONDS = 5.0
"""Of processor time for one file, so that a busy machine is no failure."""
WAIT_SECONDS, START_SECONDS = 10.0, 600.0
"""For one file by the clock on the wall, and for a worker to begin."""
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
    """A damaged copy, or what stands in its place."""

    mutation: str
    data: bytes
    valid: bool
    """Whether it may be a valid file."""
    special: Callable[[Path, Path], None] | None = None


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
    if part < 0.1:
        name = list(SPECIAL)[int(rng.integers(len(SPECIAL)))]
        return Mutant(name, whole, False, SPECIAL[name])
    if part < 0.5:
        name = list(BYTES)[int(rng.integers(len(BYTES)))]
        return Mutant(name, BYTES[name](rng, whole), not kind.sealed)
    return Mutant(*kind.damage(rng, whole), True)


@contextmanager
def damaged_file(file: Path, whole: bytes, damaged: Mutant, marker: Path) -> Iterator[None]:
    """The damaged copy in the place of a file, which is put back afterwards."""
    copy = marker.with_name("copy-elsewhere")
    if damaged.special is None:
        file.write_bytes(damaged.data)
    else:
        copy.write_bytes(whole)
        file.unlink()
        damaged.special(file, copy)
    try:
        yield
    finally:
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        file.unlink(missing_ok=True)
        file.write_bytes(whole)


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
    if damaged.special is not None:
        followed = kind.linked and damaged.mutation == "a link to a copy" and same(found, original)
        return ("identical", "") if followed else ("failures", f"was loaded from {damaged.mutation}")
    if same(found, original):
        return "identical", ""
    try:
        allowed = damaged.valid and kind.allowed(found, damaged.data)
    except Exception as error:
        return "failures", f"was loaded, though it cannot be read ({type(error).__name__}: {str(error)[:100]!r})"
    return ("valid changes", "") if allowed else ("failures", f"was loaded as something else: {str(found)[:100]!r}")


def fuzz(
    kinds: Sequence[Kind],
    marker: Path,
    numbers: range,
    seed: int,
    begin: Callable[[Result], None] = lambda result: None,
    tell: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Damage files in turn, one for each number; number and seed decide all that is random."""
    whole = {kind.name: kind.file.read_bytes() for kind in kinds}
    original = {kind.name: kind.load(kind.file) for kind in kinds}
    results = []
    for number in numbers:
        kind = kinds[number % len(kinds)]
        damaged = mutant(kind, whole[kind.name], np.random.default_rng([seed, number]), marker)
        begin(Result(kind.name, number, damaged.mutation, "failures", "it never ended"))
        with damaged_file(kind.file, whole[kind.name], damaged, marker):
            found, said = outcome(kind, original[kind.name], damaged)
        if marker.exists():
            marker.unlink()
            found, said = "failures", "what is in the file was executed"
        results.append(Result(kind.name, number, damaged.mutation, found, said))
        tell(results[-1])
    return results


def watch(
    command: Callable[[range], list[str]], numbers: range, tell: Callable[[Result], None] = lambda result: None
) -> list[Result]:
    """Have a worker do all numbers. Where it hangs or dies, that file has failed, and another worker goes on after it."""
    results: list[Result] = []
    while len(results) < len(numbers):
        for result in _watched(command(numbers[len(results) :])):
            results.append(result)
            tell(result)
    return results


def _watched(command: list[str]) -> Iterator[Result]:
    """What one worker says of its files, up to the one that it does not come to the end of.

    A worker writes a line of JSON when it is ready, and then for each file a `Result` before and another one after.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=_forward, args=(process.stdout, lines), daemon=True).start()
        try:
            if not lines.get(timeout=START_SECONDS):
                raise RuntimeError(f"the worker did not begin: {shlex.join(command)}")
            while begun := lines.get(timeout=WAIT_SECONDS):
                under_way = Result(*json.loads(begun))
                try:
                    ended = lines.get(timeout=WAIT_SECONDS)
                except queue.Empty:
                    yield under_way._replace(said=f"took more than {WAIT_SECONDS:g} s")
                    return
                if not ended:
                    yield under_way._replace(said="the process died")
                    return
                yield Result(*json.loads(ended))
        finally:
            process.kill()


def _forward(stream: Any, lines: "queue.Queue[bytes]") -> None:
    """Every line, and an empty one at the end."""
    while line := stream.readline():
        lines.put(line)
    lines.put(b"")


def worker(folder: str, numbers: range, seed: int) -> list[str]:
    """The command of a worker."""
    numbered = map(str, (numbers.start, numbers.stop, seed))
    return [sys.executable, "-m", "benchmarks.fuzz_worker", folder, *numbered]


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


def main(files: int = 20_000, seed: int = 0, first: int = 0) -> None:
    """Damage files and print what became of them; the exit code is 1 if anything else happened than may.

    Args:
        files: how many.
        seed: of the damage.
        first: number of the first file; with `--files 1` one damage is done again.
    """

    def tell(result: Result) -> None:
        if result.outcome == "failures":
            again = f"--seed {seed} --first {result.number} --files 1"
            print(f"{result.kind}, {result.mutation}: {result.said} (again with {again})", flush=True)

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder))
        ready = time.monotonic()
        results = watch(lambda numbers: worker(folder, numbers, seed), range(first, first + files), tell)
    print(table(results))
    print(f"{ready - began:.0f} s for the files, {time.monotonic() - ready:.0f} s for {files} damaged ones")
    sys.exit(any(result.outcome == "failures" for result in results))


if __name__ == "__main__":
    tyro.cli(main)
