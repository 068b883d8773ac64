"""What a reproduced result says, as plain data: tables, figures, verdicts, and of what they were made. No JAX."""

from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["holds", "does not hold", "undecided"]
"""*Undecided* means at this scale: the interval contains both answers."""


@dataclass(frozen=True)
class Measured:
    """A mean over seeds and its standard error, where there is one."""

    mean: float
    standard_error: float | None = None


Cell = str | int | float | Measured | None
"""What stands in a table; None is shown as a dash."""


@dataclass(frozen=True)
class Table:
    """Rows under named columns."""

    name: str
    """For file names: letters, digits and dashes."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    """A sentence below the table."""
    emphasised: frozenset[tuple[int, int]] = frozenset()
    """Cells (row, column) in bold: the best, where that means something."""


@dataclass(frozen=True)
class Picture:
    """A figure, drawn twice."""

    name: str
    """For file names."""
    caption: str
    png: bytes
    svg: bytes


@dataclass(frozen=True)
class Check:
    """One claim of the paper, and what the numbers say to it."""

    claim: str
    """In one sentence, with the condition it is about."""
    verdict: Verdict
    effect: float | None
    """The quantity that decides, and"""
    interval: tuple[float, float] | None
    """its interval."""
    quantity: str
    """What the effect is, in words, unit and sign included: positive effects speak for the claim."""
    confidence: float = 0.95
    note: str = ""


@dataclass(frozen=True)
class Findings:
    """All of one result."""

    name: str
    """As on the command line."""
    title: str
    paper: str
    """What the paper claims, in a few sentences."""
    checks: tuple[Check, ...]
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know: what differs from the paper, what is missing, which jobs failed."""
    about: dict[str, Any] = field(default_factory=dict)
    """By heading (`command`, `scale`, `seeds`, `machine`, `versions`, `time spent`, `configuration`, …): a string, a
    number, or a table of settings that may be nested."""
