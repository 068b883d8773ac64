"""The ledger of a run: which tests were begun, in a chain of hashes that shows deletions and reordering.

Trying until a test passes is no test. Every protocol is registered here before its first rollout; a second test of the same claim
about the same policy is refused unless it is asked for explicitly, and then the certificate counts the levels of all tests.

`certificates/ledger.json` is a list of entries. Each holds the SHA-256 of the one before it, so whoever knows the
SHA-256 of some entry (the *head* at that time) can tell that nothing before it was deleted, changed or reordered since. Somebody
who replaces the whole ledger is caught only by a head that was published before.
"""

import dataclasses
import datetime
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evarl.certificates import hashes
from evarl.certificates.certificate import Attempt, Place
from evarl.certificates.protocol import LARGEST_LEVEL, LEAST_LEVEL, Protocol
from evarl.errors import FileError, InputError
from evarl.storage.files import write_bytes
from evarl.storage.plain import as_declared, read_json

FOLDER = "certificates"
LEDGER = "ledger.json"
NOTHING = "0" * 64
"""What the first entry has in place of the SHA-256 of the one before it."""


@dataclass(frozen=True)
class Entry:
    """A test that was begun, a comparison that was begun, or a certificate that was issued."""

    number: int
    previous: str
    """SHA-256 of the entry before."""
    time: str
    kind: Literal["test", "comparison", "certificate"]
    digest: str
    """SHA-256 of the protocol of the test, of the comparison, or of the certificate."""
    error: float = 0.0
    """Of a test or a comparison: the probability that it concludes what is false."""
    protocol: Protocol | None = None
    """Of a test."""
    candidates: tuple[str, ...] = ()
    """Of a comparison: SHA-256 of the policies."""
    earlier: tuple[Attempt, ...] = ()
    """Of a comparison: earlier ones in its candidates' runs."""

    def hash(self) -> str:
        """SHA-256 of all fields."""
        return hashes.of_data(json.loads(json.dumps(dataclasses.asdict(self))))


def path_of(run: Path, protocol: Protocol) -> Path:
    """Where the certificate of a protocol goes."""
    return run / FOLDER / f"{protocol.claim}-seed-{protocol.seed}-{protocol.hash()[:12]}.json"


def read(run: Path) -> list[Entry]:
    """All entries, oldest first; FileError where the chain is broken."""
    file, entries, previous = run / FOLDER / LEDGER, [], NOTHING
    if not os.path.lexists(file):
        if kept := next(iter(sorted((run / FOLDER).glob("*-seed-*.json"))), None):
            raise FileError(f"{file}: is missing, though there is {kept.name}; entries were deleted, put it back")
        return []
    data = read_json(file)
    if not isinstance(data, list):
        raise FileError(f"{file}: is not a ledger; want a list of entries")
    for number, one in enumerate(data):
        where = f"{file}, entry {number}"
        stated = one.pop("sha256", None) if isinstance(one, dict) else None
        entry = as_declared(Entry, one, where)
        if entry.number != number or entry.previous != previous or entry.hash() != stated:
            raise FileError(f"{where}: the chain is broken; entries were changed, deleted or put in another order")
        _check_entry(entry, where)
        entries.append(entry)
        previous = stated
    return entries


def _check_entry(entry: Entry, where: str) -> None:
    """Refuse what `_append` never writes, though the chain may fit: a level of 0 or less would raise a confidence."""
    if entry.kind == "certificate":
        return
    errors = [entry.error, *(one.error for one in entry.earlier)]
    if entry.kind == "test":
        protocol = entry.protocol
        if protocol is None or (protocol.hash(), protocol.error) != (entry.digest, entry.error):
            raise FileError(f"{where}: is not what its protocol says")
    elif not entry.candidates:
        raise FileError(f"{where}: is a comparison without candidates")
    if any(not LEAST_LEVEL <= error <= LARGEST_LEVEL for error in errors):
        raise FileError(f"{where}: has a level outside of what is allowed; want {LEAST_LEVEL:g} to {LARGEST_LEVEL}")


def head(entries: list[Entry]) -> str:
    """SHA-256 of the newest entry, which stands for all before it."""
    return entries[-1].hash() if entries else NOTHING


def find(entries: list[Entry], protocol: Protocol) -> Entry | None:
    """The entry that registered a test."""
    digest = protocol.hash()
    return next((entry for entry in entries if entry.kind == "test" and entry.digest == digest), None)


def place(entry: Entry) -> Place:
    """An entry as certificates refer to it."""
    return Place(entry.number, entry.hash())


def earlier_tests(entries: list[Entry], protocol: Protocol) -> tuple[Attempt, ...]:
    """What was begun before a test and counts against it; all of the ledger if the test is not registered yet.

    These are tests of the same claim about the same seed: within a run that is the same policy, whatever its bytes. A test
    that is part of a comparison also counts earlier comparisons in its candidates' runs: whoever drops a candidate that has
    failed and compares the others again has tried twice.
    """
    own = find(entries, protocol)
    before = entries if own is None else entries[: own.number]
    found = {one.digest: one for one in all_tests(before, protocol)}
    for entry in before:
        if protocol.candidates and entry.kind == "comparison" and entry.digest == protocol.comparison:
            found |= {one.digest: one for one in entry.earlier}
    return tuple(found.values())


def all_tests(entries: list[Entry], protocol: Protocol) -> tuple[Attempt, ...]:
    """Every test of this claim about this seed that was begun, whenever; by its comparison where it is the first of one."""
    found: dict[str, Attempt] = {}
    for entry in entries:
        other = entry.protocol
        if other is not None and (other.claim, other.seed) == (protocol.claim, protocol.seed):
            known = not other.comparison or other.comparison in found
            digest = entry.digest if known else other.comparison
            found[digest] = Attempt(digest, entry.error)
    return tuple(found.values())


def compared(entries: list[Entry], protocol: Protocol) -> bool:
    """Whether the comparison that a test is part of was registered."""
    mine = [entry for entry in entries if entry.kind == "comparison" and entry.digest == protocol.comparison]
    return any(entry.candidates == protocol.candidates for entry in mine)


def register(run: Path, protocol: Protocol, again: bool) -> tuple[Entry, tuple[Attempt, ...]]:
    """Enter a test before anything is rolled out; gives its entry and the earlier tests that count."""
    with locked([run]):
        entries = read(run)
        earlier = earlier_tests(entries, protocol)
        if (own := find(entries, protocol)) is not None:
            return own, earlier
        if earlier and not again and not protocol.candidates:  # a comparison asks for all its candidates at once
            raise InputError(
                f"{protocol.claim} has been tested for this policy before, at level {earlier[-1].error:g}, "
                f"{_what_became(run, entries, earlier[-1])}. With --again there are new rollouts, and the levels of all tests "
                f"add up, to a confidence of at most {1 - sum(one.error for one in earlier) - protocol.error:.4g}"
            )
        return _append(run, entries, "test", protocol.hash(), error=protocol.error, protocol=protocol), earlier


def _what_became(run: Path, entries: list[Entry], attempt: Attempt) -> str:
    """Where the result of an earlier test is."""
    tests = (entry.protocol for entry in entries if entry.protocol)
    test = next((one for one in tests if attempt.digest in (one.hash(), one.comparison)), None)
    path = None if test is None else path_of(run, test)
    if path is None or not path.exists():
        return "and was not finished; the same command as then finishes it"
    return f"and its result stands ({path})"


def register_comparison(tests: list[tuple[Path, Protocol]], again: bool) -> None:
    """Enter a comparison in the ledgers of all its candidates' runs, whether or not their turn will come."""
    first = tests[0][1]
    with locked([run for run, _ in tests]):
        ledgers = {run: read(run) for run, _ in tests}
        missing = [run for run, entries in ledgers.items() if not compared(entries, first)]
        begun = any(find(ledgers[run], protocol) for run, protocol in tests)
        if not missing and begun:  # it was interrupted, and goes on
            return
        shared = {
            entry.digest: Attempt(entry.digest, entry.error)
            for entries in ledgers.values()
            for entry in entries
            if entry.kind == "comparison" and entry.digest != first.comparison
        }
        if not again and (shared or any(earlier_tests(ledgers[run], protocol) for run, protocol in tests)):
            raise InputError(
                "runs: some of these policies have been tested or compared before; the results stand. With --again there are "
                "new rollouts, and the levels of all tests add up"
            )
        for run in missing:
            earlier = tuple(shared.values())
            _append(
                run,
                ledgers[run],
                "comparison",
                first.comparison,
                first.error,
                candidates=first.candidates,
                earlier=earlier,
            )


def enter_certificate(run: Path, digest: str) -> None:
    """Enter the SHA-256 of a certificate that is about to be written."""
    with locked([run]):
        _append(run, read(run), "certificate", digest)


@contextmanager
def locked(runs: list[Path]) -> Iterator[None]:
    """Keep other processes from registering in these runs at the same time."""
    with ExitStack() as stack:
        for run in sorted(set(runs)):
            folder = run / FOLDER
            try:
                folder.mkdir(exist_ok=True)
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except OSError as error:
                raise FileError(f"{folder}: cannot be opened as a folder ({error.strerror or error})") from error
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _append(
    run: Path,
    entries: list[Entry],
    kind: Literal["test", "comparison", "certificate"],
    digest: str,
    error: float = 0.0,
    protocol: Protocol | None = None,
    candidates: tuple[str, ...] = (),
    earlier: tuple[Attempt, ...] = (),
) -> Entry:
    """The new entry; the file is replaced as a whole, so that none is ever half-written."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    entry = Entry(len(entries), head(entries), now, kind, digest, error, protocol, candidates, earlier)
    entries.append(entry)
    data = [dataclasses.asdict(one) | {"sha256": one.hash()} for one in entries]
    write_bytes(run / FOLDER / LEDGER, (json.dumps(data, indent=1) + "\n").encode())
    return entry
