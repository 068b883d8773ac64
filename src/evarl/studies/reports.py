"""Results of a study as plain data: tables, figures, checked claims and provenance. No JAX."""

from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["holds", "does not hold", "undecided"]
"""A claim is undecided where the confidence interval contains both answers."""


CONTROL = " (a control the paper does not show)"
"""Part of the claims about controls."""


@dataclass(frozen=True)
class MeanAndError:
    """A mean over seeds (or trials) and its standard error, where there is one."""

    mean: float
    standard_error: float | None = None


Cell = str | int | float | MeanAndError | None
"""Content of a table cell; None is shown as a dash."""


@dataclass(frozen=True)
class ReportTable:
    """Rows under named columns."""

    name: str
    """For file names: letters, digits and dashes."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    """Shown below the table."""
    emphasised: frozenset[tuple[int, int]] = frozenset()
    """Cells (row, column) in bold."""


@dataclass(frozen=True)
class ReportFigure:
    """A figure as PNG and as SVG."""

    name: str
    """For file names: letters, digits and dashes."""
    caption: str
    png: bytes
    svg: bytes


@dataclass(frozen=True)
class ClaimCheck:
    """One claim, the effect that decides it, and the verdict."""

    claim: str
    """In one sentence, with the condition it is about."""
    verdict: Verdict
    effect: float | None
    """The quantity that decides; positive effects speak for the claim, or effects near 0 where it is one of agreement."""
    interval: tuple[float, float] | None
    """Confidence interval of the effect."""
    quantity: str
    """What the effect is, unit and sign included."""
    confidence: float = 0.95
    note: str = ""
    baseline: float | None = None
    """Size of what the effect is compared with, for the same unit: effects are drawn as parts of it."""
    parts: int = 1
    """Comparisons that share the error of the claim; above 1, the interval of the one that decides is wider than at 95 %."""
    seeds: int | None = None
    """Seeds that were compared; None for claims that are not decided by paired differences over seeds."""
    seeds_needed: int | None = None
    """Seeds that would decide the claim with a chance of 80 % if the observed effects were true, which is optimistic; 1001 stands
    for more than 1000 (`evarl.studies.power`)."""
    detectable: float | None = None
    """The least true effect that as many seeds as there are would decide with a chance of 80 %."""


@dataclass(frozen=True)
class StudyResults:
    """What a study measured."""

    checks: tuple[ClaimCheck, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    figures: tuple[ReportFigure | None, ...] = ()
    """None for those that there is nothing to draw of; a report leaves them out."""
    notes: tuple[str, ...] = ()
    """What a reader must know: differences from the paper, missing data, failed jobs."""


@dataclass(frozen=True, kw_only=True)
class StudyReport(StudyResults):
    """The results of a study with its description and its provenance: everything on its page."""

    name: str
    """As on the command line."""
    title: str
    figures: tuple[ReportFigure, ...] = ()
    paper: str = ""
    """What the paper claims; empty for studies that are not in the paper."""
    method: str = ""
    """What is run and measured, where the paper does not say it."""
    about: dict[str, Any] = field(default_factory=dict)
    """By heading (`command`, `scale`, `seeds`, `machine`, `versions`, `time spent`, `configuration`, …): a string, a
    number, or a table of settings that may be nested."""
