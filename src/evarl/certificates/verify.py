"""Check a certificate: that it is what was issued, that what it binds is unchanged, and that the rollouts give it again."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evarl.certificates import hashes, ledger
from evarl.certificates.certificate import Certificate, left_of, load
from evarl.certificates.conclusions import conclude, percent
from evarl.certificates.evidence import Say, gather
from evarl.certificates.subject import open_subject
from evarl.errors import EvarlError, FileError, InputError
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.provenance import machine

ROUNDING = 1e-5
"""Another processor or another version may round otherwise; closer than this, relative to the range of returns, is the same."""


@dataclass(frozen=True)
class Verification:
    """What was found."""

    path: Path
    certificate: Certificate
    changed: dict[str, str]
    """What differs from what the certificate binds, by name, and how."""
    notes: list[str]
    """What differs without voiding the certificate."""

    @property
    def verified(self) -> bool:
        """Whether everything was found as it was certified."""
        return not self.changed


def verify_certificate(
    path: str | Path, run: str | Path | None = None, *, rerun: bool = True, say: Say = lambda line: None
) -> Verification:
    """Check a certificate against its run, which is the one it lies in unless another directory is given.

    Without `rerun` only files, checksums and the conclusion are checked, and nothing is rolled out.
    """
    path = Path(path)
    certificate = load(path)
    protocol = certificate.protocol
    changed, notes = {}, []
    folder = Path(run) if run is not None else _run_of(path)
    bound = {name: (folder / name, digest) for name, digest in protocol.files.items()}
    for one in protocol.calibration:
        bound |= {f"{one.run}: {name}": (folder / one.run / name, digest) for name, digest in one.files.items()}
    for name, (file, digest) in bound.items():
        try:
            if hashes.of_file(file) != digest:
                changed[name] = "has been changed since the certificate was issued"
        except FileError as error:
            changed[name] = str(error).removeprefix(f"{file}: ")
    evidence = {name: list(column) for name, column in certificate.evidence.items()}
    try:
        if conclude(protocol, evidence) != certificate.conclusion:
            changed["conclusion"] = "does not follow from the returns in the certificate"
    except (EvarlError, KeyError, ValueError, AssertionError) as error:
        changed["conclusion"] = f"cannot be drawn from the evidence in the certificate ({error})"
    html = path.with_suffix(".html")
    if html.exists() and hashes.of_file(html) != certificate.page_sha256:
        changed[html.name] = "has been changed since the certificate was issued"
    if not ledger.protocol_path(folder, protocol).exists():
        changed[ledger.protocol_path(folder, protocol).name] = "is missing: what was fixed before the rollouts"
    notes += _differences(certificate)
    if tests := ledger.others(folder, protocol):
        left = left_of([protocol.error, *(other.error for _, other in tests)])
        notes.append(
            f"{protocol.claim} was tested {len(tests) + 1} times for this policy; whoever chooses among the results has a "
            f"confidence of {percent(left)}"
        )
    if rerun and not changed:
        keep_compiled_programs()
        again = gather(protocol, open_subject(folder, protocol.seed), say)
        changed |= _compare(protocol.low, protocol.high, evidence, again, notes)
    return Verification(path, certificate, changed, notes)


def _run_of(path: Path) -> Path:
    folder = path.resolve().parent
    if folder.name != ledger.FOLDER:
        raise InputError(
            f"{path}: does not lie in the folder {ledger.FOLDER} of a run; say with --run which run it is for"
        )
    return folder.parent


def _differences(certificate: Certificate) -> list[str]:
    """Code and machine: they may change, if the numbers stay."""
    here, notes = hashes.of_code(), []
    if here.source != certificate.code.source:
        was = certificate.code.commit
        notes.append(
            f"code: evarl's source has changed since the certificate was issued (commit {was}, now {here.commit})"
        )
    for name, version in here.versions.items():
        if (was := certificate.code.versions.get(name)) != version:
            notes.append(f"versions: {name} was {was} and is {version}")
    if (processor := certificate.machine.get("processor")) != machine()["processor"]:
        notes.append(f"machine: the processor was {processor} and is {machine()['processor']}")
    return notes


def _compare(
    low: float | None,
    high: float | None,
    kept: dict[str, list[float]],
    again: dict[str, list[float]],
    notes: list[str],
) -> dict[str, str]:
    """What the rollouts give now, beside what they gave then."""
    scale = 1.0 if low is None or high is None else high - low
    changed = {}
    for name in sorted(kept.keys() | again.keys()):
        then, now = np.asarray(kept.get(name, ())), np.asarray(again.get(name, ()))
        if then.shape != now.shape:
            changed[name] = f"there were {then.size}, and now there are {now.size}"
        elif (worst := float(np.abs(then - now).max(initial=0.0))) > ROUNDING * scale:
            changed[name] = f"come out otherwise now: they differ by up to {worst:.3g}"
        elif worst > 0:
            notes.append(f"rounding: {name} differ by up to {worst:.1g}")
    return changed
