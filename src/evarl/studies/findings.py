"""Tables of docs/findings.md: claims with what was measured, numbers of the paper beside ours, and certificates."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evarl.errors import FileError
from evarl.storage.plain import read_json
from evarl.studies.catalogue import continuous, mismatch
from evarl.studies.jobs import Store
from evarl.studies.power import FEASIBLE, told
from evarl.studies.reports import CONTROL, Cell, MeanAndError, ReportTable
from evarl.studies.scales import StudyScale
from evarl.studies.tables import interval, number

ROLLOUTS = (50, 200, 1000)
"""Rollouts of the certificates of a mean return."""


OLDER = {"mismatch": "paper", "tabular": "paper"}
"""Scales of reports of earlier versions, which did not store them; those of the others are `laptop`."""


def read_scale(file: Path) -> str:
    """The scale of the report that the file is beside."""
    return str(read_json(file).get("scale") or OLDER.get(file.parent.name, "laptop"))


def read_checks(file: Path) -> list[dict[str, Any]]:
    """The claims in the file that a report has beside it."""
    try:
        return [{**check, "verdict": check["verdict"]} for check in read_json(file)["checks"]]
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{file}: is not a list of checks; write it again with `evarl reproduce`") from error


@dataclass(frozen=True)
class OpenClaim:
    """A claim that a report left undecided, and how many seeds would decide it."""

    study: str
    scale: str
    """Of the report."""
    claim: str
    seeds: int
    seeds_needed: int
    feasible: bool
    """Whether anybody may run so many."""


def open_claims(folder: Path, studies: Sequence[str]) -> list[OpenClaim]:
    """The undecided claims of the reports in a folder, with the seeds that they need by the variance that was observed.

    Studies without a report have none.
    """
    found = []
    for name in studies:
        file = folder / name / "checks.json"
        for check in read_checks(file) if os.path.lexists(file) else ():
            if check["verdict"] == "undecided" and check.get("seeds_needed") is not None:
                needed = int(check["seeds_needed"])
                open_ = OpenClaim(name, read_scale(file), check["claim"], check["seeds"], needed, needed <= FEASIBLE)
                found.append(open_)
    return found


def claims_table(checks: Sequence[dict[str, Any]], controls: bool) -> ReportTable:
    """A row for each claim: its effect with interval, seeds and verdict, and how many seeds would decide it.

    Either what the paper claims, or what its controls claim.
    """
    rows: list[tuple[Cell, ...]] = []
    for check in checks:
        if (CONTROL in check["claim"]) is controls:
            effect, bounds = interval(check["effect"], check["interval"])
            shown = "—" if bounds is None else f"{bounds[0]} to {bounds[1]}"
            seeds = "—" if check.get("seeds") is None else str(check["seeds"])
            rows.append((check["claim"].replace(CONTROL, ""), effect, shown, seeds, check["verdict"], *_power(check)))
    head = ("claim", "effect", "interval", "seeds", "verdict", "seeds to decide", "least effect these seeds decide")
    return ReportTable("claims", "", head, tuple(rows))


def _power(check: dict[str, Any]) -> tuple[str, str]:
    """For an undecided claim, how many seeds would decide it, and what the present ones can."""
    if check["verdict"] != "undecided" or check.get("seeds_needed") is None or check.get("detectable") is None:
        return "", ""
    if check["detectable"] == 0 and check["effect"] == 0:
        return "none: all differences are 0", ""
    return told(check["seeds_needed"]), number(check["detectable"])


def numbers_table(store: Store, robots: StudyScale, navigation: StudyScale) -> ReportTable:
    """A row for each number that the paper prints: ours at both kinds of states, and the relative differences."""
    rows: list[tuple[Cell, ...]] = []
    by_policy = [("Navigation", f"{row[1]}, {row[0]}", *row[2:]) for row in mismatch.beside(navigation, store).rows]
    for where, quantity, printed, start, visited, *_ in [*continuous.beside(robots, store).rows, *by_policy]:
        if isinstance(printed, MeanAndError):
            one, other = relative(start, printed), relative(visited, printed)
            rows.append((where, quantity, printed, start, one, visited, other))
    head = ("world", "quantity", "the paper", "here, start states", "differs by", "here, visited states", "differs by")
    return ReportTable("numbers", "", head, tuple(rows))


def relative(ours: Cell, theirs: MeanAndError) -> str | None:
    """The difference of two means as a share of the size of theirs.

    >>> relative(MeanAndError(3.0), MeanAndError(2.0)), relative(MeanAndError(-3.0), MeanAndError(-2.0))
    ('+50 %', '−50 %')
    """
    if not isinstance(ours, MeanAndError):
        return None
    share = 100 * (ours.mean - theirs.mean) / abs(theirs.mean)
    return f"{share:+.{0 if abs(share) >= 9.95 else 1}f} %".replace("-", "−")


def certificates_table(file: Path) -> ReportTable:
    """How many certified lower bounds were false, and how far they were below the exact value."""
    found = read_json(file)
    truth = np.array(found["true J"], np.float64)
    bounds = {f"mean return, {count} rollouts": np.array(found[f"bounds from {count} rollouts"]) for count in ROLLOUTS}
    bounds["a new policy, without deployment"] = np.array(found["new-policy"])
    rows: list[tuple[Cell, ...]] = []
    for claim, lower in bounds.items():
        gap = truth[: len(lower)] - lower
        rows.append((claim, len(lower), int((gap < 0).sum()), float(gap.mean())))
    head = ("claim", "certificates", "false", "mean gap to the exact value")
    return ReportTable("certificates", "", head, tuple(rows))
