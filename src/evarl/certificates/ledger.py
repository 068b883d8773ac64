"""The ledger of a run: a hash chain of the tests that were begun, which shows deletions and reordering. No JAX.

Repeating a test until it passes makes its level invalid. Every protocol is therefore registered before its first rollout; a
second test of the same claim about the same policy is refused unless it is asked for, and then the certificate counts the
levels of all tests.

`certificates/ledger.json` holds a list of entries, each with the SHA-256 of the one before it. Whoever knows the SHA-256 of
some entry (the *head* at that time) can tell that nothing before it was deleted, changed or reordered since. A ledger that was
replaced as a whole is detected only by a head that was published before.
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
from typing import Any, Literal

from evarl.certificates import hashes
from evarl.certificates.certificate import FORMAT, Attempt, Place, check_format
from evarl.certificates.protocol import LARGEST_LEVEL, LEAST_LEVEL, Protocol
from evarl.errors import FileError, InputError
from evarl.runs.provenance import versions
from evarl.storage.files import write_bytes
from evarl.storage.plain import as_declared, read_json

FOLDER = "certificates"
LEDGER = "ledger.json"
NOTHING = "0" * 64
"""Stands in the first entry for the SHA-256 of the one before."""
Kind = Literal["test", "comparison", "certificate"]


@dataclass(frozen=True)
class Entry:
    """A test that was begun, a comparison that was begun, or a certificate that was issued."""

    number: int
    previous: str
    """SHA-256 of the entry before."""
    time: str
    kind: Kind
    digest: str
    """SHA-256 of the protocol of the test, of the comparison, or of the certificate."""
    error: float = 0.0
    """Of a test or a comparison: the probability that its conclusion is false."""
    protocol: Protocol | None = None
    """Of a test."""
    candidates: tuple[str, ...] = ()
    """Of a comparison: SHA-256 of the policies."""
    earlier: tuple[Attempt, ...] = ()
    """Of a comparison: earlier ones in its candidates' runs."""

    def hash(self) -> str:
        """SHA-256 of all fields."""
        return hashes.of_data(dataclasses.asdict(self))


def path_of(run: Path, protocol: Protocol) -> Path:
    """The file of the certificate of a protocol."""
    return run / FOLDER / file_name(protocol)


def file_name(protocol: Protocol) -> str:
    """The name of the file of a certificate."""
    return f"{protocol.claim}-seed-{protocol.seed}-{protocol.hash()[:12]}.json"


def read(run: Path) -> list[Entry]:
    """All entries, oldest first; FileError where the chain is broken."""
    file, entries, previous = run / FOLDER / LEDGER, [], NOTHING
    if not os.path.lexists(file):
        if kept := next(iter(sorted((run / FOLDER).glob("*-seed-*.json"))), None):
            raise FileError(
                f"{file}: is missing, although there is {kept.name}; entries were deleted, restore the file"
            )
        return []
    data = read_json(file)
    if isinstance(data, list):  # the layout before format 3, which did not name its version
        raise FileError(
            f"{file}: is a ledger of format 2 or 1, written by evarl 0.1.0; this version reads format {FORMAT} only"
        )
    check_format(data, "ledger", file)
    listed = data.get("entries")
    if data.keys() != {"format", "evarl", "entries"} or not isinstance(listed, list):
        raise FileError(f"{file}: is not a ledger; must have a format, a version of evarl and a list of entries")
    for number, one in enumerate(listed):
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
    """Refuse entries that are never written, even if the chain fits: a level of 0 or less would raise a confidence."""
    if entry.kind == "certificate":
        return
    errors = [entry.error, *(one.error for one in entry.earlier)]
    if entry.kind == "test":
        protocol = entry.protocol
        if protocol is None or (protocol.hash(), protocol.error) != (entry.digest, entry.error):
            raise FileError(f"{where}: does not agree with its protocol")
    elif not entry.candidates:
        raise FileError(f"{where}: is a comparison without candidates")
    if any(not LEAST_LEVEL <= error <= LARGEST_LEVEL for error in errors):
        raise FileError(f"{where}: has a level that is not allowed; must be {LEAST_LEVEL:g} to {LARGEST_LEVEL}")


def head(entries: list[Entry]) -> str:
    """SHA-256 of the newest entry, which determines all before it."""
    return entries[-1].hash() if entries else NOTHING


def find(entries: list[Entry], protocol: Protocol) -> Entry | None:
    """The entry that registered a test."""
    digest = protocol.hash()
    return next((entry for entry in entries if entry.kind == "test" and entry.digest == digest), None)


def place(entry: Entry) -> Place:
    """The place of an entry, for certificates."""
    return Place(entry.number, entry.hash())


def earlier_tests(entries: list[Entry], protocol: Protocol) -> tuple[Attempt, ...]:
    """Tests that were begun before a test and count against it; all of the ledger if it is not registered yet.

    These are tests of the same claim about the same seed, which within a run is the same policy, whatever its bytes. A test
    that is part of a comparison also counts earlier comparisons in its candidates' runs: to drop a candidate that has failed
    and to compare the others again is a second attempt. A test of a site counts those of the same site, and calibrations other
    than its own: to calibrate until the margin is lucky is to try several times.
    """
    own = find(entries, protocol)
    before = entries if own is None else entries[: own.number]
    found = {one.digest: one for one in all_tests(before, protocol)}
    for entry in before:
        if protocol.candidates and entry.kind == "comparison" and entry.digest == protocol.comparison:
            found |= {one.digest: one for one in entry.earlier}
    return tuple(found.values())


def all_tests(entries: list[Entry], protocol: Protocol) -> tuple[Attempt, ...]:
    """All tests of this claim about this seed, earlier or later; the first test of a comparison stands for the comparison."""
    found: dict[str, Attempt] = {}
    for entry in entries:
        other = entry.protocol
        if other is not None and (_repeats(other, protocol) or _recalibrates(other, protocol)):
            known = not other.comparison or other.comparison in found
            digest = entry.digest if known else other.comparison
            found[digest] = Attempt(digest, entry.error)
    return tuple(found.values())


def _repeats(other: Protocol, protocol: Protocol) -> bool:
    """Whether two tests are about the same: the claim, the seed and, if there is one, the site."""
    same = (other.claim, other.seed, other.site) == (protocol.claim, protocol.seed, protocol.site)
    return same and (not protocol.drawn or other.calibrating == protocol.calibrating)


def _recalibrates(other: Protocol, protocol: Protocol) -> bool:
    """Whether a test is a calibration that a site could have been tested with, but was not."""
    same = (other.claim, other.seed) == (protocol.claim, protocol.seed)
    return same and bool(protocol.site) and not other.site and other != protocol.calibrating


def compared(entries: list[Entry], protocol: Protocol) -> bool:
    """Whether the comparison that a test is part of was registered."""
    mine = [entry for entry in entries if entry.kind == "comparison" and entry.digest == protocol.comparison]
    return any(entry.candidates == protocol.candidates for entry in mine)


def register(run: Path, protocol: Protocol, again: bool) -> tuple[Entry, tuple[Attempt, ...]]:
    """Register a test before its first rollout; returns its entry and the earlier tests that count."""
    with locked([run]):
        entries = read(run)
        earlier = earlier_tests(entries, protocol)
        if (own := find(entries, protocol)) is not None:
            return own, earlier
        repeated = [entry.digest for entry in entries if entry.protocol and _repeats(entry.protocol, protocol)]
        if repeated and not again and not protocol.candidates:  # a comparison is refused as a whole
            last = [one for one in earlier if not protocol.site or one.digest in repeated][-1]
            where = "on this site" if protocol.site else "for this policy"
            raise InputError(
                f"{protocol.claim} has been tested {where} before, at level {last.error:g}, "
                f"{_result_of(run, entries, last)}. With --again it is tested with new rollouts, and the levels of all "
                f"tests add up, to a confidence of at most {1 - sum(one.error for one in earlier) - protocol.error:.4g}"
            )
        return _append(run, entries, "test", protocol.hash(), error=protocol.error, protocol=protocol), earlier


def _result_of(run: Path, entries: list[Entry], attempt: Attempt) -> str:
    """The state of an earlier test, in words."""
    tests = (entry.protocol for entry in entries if entry.protocol)
    paths = [path_of(run, test) for test in tests if attempt.digest in (test.hash(), test.comparison)]
    if not paths or not paths[0].exists():
        return "and was not finished; the same command as then continues it"
    return f"and the result is {paths[0]}"


def register_comparison(tests: list[tuple[Path, Protocol]], again: bool) -> None:
    """Register a comparison in the ledgers of the runs of all its candidates, also of those that will not be tested."""
    first = tests[0][1]
    with locked([run for run, _ in tests]):
        ledgers = {run: read(run) for run, _ in tests}
        missing = [run for run, entries in ledgers.items() if not compared(entries, first)]
        begun = any(find(ledgers[run], protocol) for run, protocol in tests)
        if not missing and begun:  # it was interrupted and is continued
            return
        shared = {
            entry.digest: Attempt(entry.digest, entry.error)
            for entries in ledgers.values()
            for entry in entries
            if entry.kind == "comparison" and entry.digest != first.comparison
        }
        if not again and (shared or any(earlier_tests(ledgers[run], protocol) for run, protocol in tests)):
            raise InputError(
                "runs: some of these policies have been tested or compared before. With --again they are tested with new "
                "rollouts, and the levels of all tests add up"
            )
        more = {"error": first.error, "candidates": first.candidates, "earlier": tuple(shared.values())}
        for run in missing:
            _append(run, ledgers[run], "comparison", first.comparison, **more)


def enter_certificate(run: Path, digest: str) -> None:
    """Register the SHA-256 of a certificate that is about to be written."""
    with locked([run]):
        _append(run, read(run), "certificate", digest)


@contextmanager
def locked(runs: list[Path]) -> Iterator[None]:
    """A lock that keeps other processes from registering in these runs."""
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


def _append(run: Path, entries: list[Entry], kind: Kind, digest: str, **fields: Any) -> Entry:
    """Add an entry; the file is replaced as a whole, so that it is never half-written."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    entry = Entry(len(entries), head(entries), now, kind, digest, **fields)
    entries.append(entry)
    listed = [dataclasses.asdict(one) | {"sha256": one.hash()} for one in entries]
    data = {"format": f"evarl ledger {FORMAT}", "evarl": versions()["evarl"], "entries": listed}
    write_bytes(run / FOLDER / LEDGER, (json.dumps(data, indent=1) + "\n").encode())
    return entry
