"""The tables of `make ope-coverage`, from its figures."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from benchmarks.ope_coverage_cases import CASES
from evarl.ope.registry import LABELS
from evarl.report.markdown import markdown_table

NOMINAL, WARNED = 0.95, 0.9


@dataclasses.dataclass(frozen=True)
class Row:
    """What became of one interval of one method in one world."""

    case: str
    method: str
    interval: str
    """"–" for a method that gave none at all, "refused" for one that raised an error every time."""
    runs: int
    warned: int
    given: int
    covered: int
    missed_unwarned: int

    @property
    def coverage(self) -> float:
        """Share of the intervals that contain the exact value."""
        return self.covered / self.given if self.given else float("nan")

    @property
    def error(self) -> float:
        """Standard error of the coverage."""
        return (self.coverage * (1 - self.coverage) / self.given) ** 0.5 if self.given else float("nan")

    @property
    def verdict(self) -> str:
        """Whether the interval holds, or at least nine in ten runs carry a warning.

        >>> Row("", "", "t", runs=400, warned=0, given=400, covered=376, missed_unwarned=24).verdict
        'holds'
        >>> Row("", "", "t", runs=400, warned=390, given=400, covered=200, missed_unwarned=10).verdict
        'warned'
        >>> Row("", "", "t", runs=400, warned=0, given=400, covered=368, missed_unwarned=32).verdict
        'misleads'
        """
        if not self.given:
            return "no interval"
        if self.coverage >= NOMINAL - 2 * self.error:
            return "holds"
        return "warned" if self.warned >= WARNED * self.runs else "misleads"


def rows(found: dict[str, Any]) -> list[Row]:
    """One row for each world, method and interval."""
    made = []
    for case in CASES:
        counts: dict[str, list[dict[str, Any]]] = {}
        for name, of_job in found["jobs"].items():
            if name.startswith(case.name + " |"):
                for method, one in of_job.items():
                    counts.setdefault(method, []).append(one)
        for method in found["methods"]:
            blocks = counts.get(method, [])
            names = dict.fromkeys(name for block in blocks for name in block["intervals"])
            totals = [sum(block[key] for block in blocks) for key in ("runs", "warned")]
            refused = sum(sum(block["errors"].values()) for block in blocks)
            missing = "refused" if blocks and refused == totals[0] else "–"
            for interval in names or ([missing] if blocks else []):
                these = [block["intervals"].get(interval, {}) for block in blocks]
                keys = ("given", "covered", "missed_unwarned")
                made.append(Row(case.name, method, interval, *totals, *(sum(x.get(k, 0) for x in these) for k in keys)))
    return made


def full_table(found: dict[str, Any]) -> str:
    """Every row."""
    return _table(rows(found))


def page_text(found: dict[str, Any]) -> str:
    """Markdown for the page: a line for each method and interval over all worlds, and every row that misleads."""
    every = rows(found)
    lines = []
    for method, interval in dict.fromkeys((row.method, row.interval) for row in every):
        these = [row for row in every if (row.method, row.interval) == (method, interval)]
        worst = min((row for row in these if row.given), key=lambda row: row.coverage, default=None)
        verdicts = [row.verdict for row in these]
        counted = [str(verdicts.count(name) or "") for name in ("holds", "warned", "no interval", "misleads")]
        least = "" if worst is None else f"{_percent(worst)} ({worst.case}, {worst.warned / worst.runs:.0%} warned)"
        lines.append([_label(method), interval, str(min(row.runs for row in these)), *counted, least])
    columns = ["method", "interval", "logs", "holds", "warned", "none", "misleads", "least coverage"]
    summary = markdown_table(columns, lines, [False, False, True, True, True, True, True, False])
    bad = [row for row in every if row.verdict == "misleads"]
    met = f"Not met by {len(bad)} of {len(every)} rows:\n\n{_table(bad)}" if bad else f"Met by all {len(every)} rows."
    worlds = len({row.case for row in every})
    about = f"{worlds} worlds, 200 trajectories in each log; *logs* is the least number of them in a world."
    missing = [_label(method) for method in found["methods"] if method not in {row.method for row in every}]
    left = f" Not measured with this version: {', '.join(missing)}." if missing else ""
    return f"{about}{left} Numbers of worlds by verdict:\n\n{summary}\n\n{met}"


def _table(these: Iterable[Row]) -> str:
    cells = [
        [
            row.case,
            _label(row.method),
            row.interval,
            str(row.runs),
            _percent(row) if row.given else "",
            f"{row.warned / row.runs:.0%}",
            f"{1 - row.given / row.runs:.0%}",
            f"{row.missed_unwarned / row.runs:.1%}",
            row.verdict,
        ]
        for row in these
    ]
    columns = ["world", "method", "interval", "runs", "coverage, %", "warned", "none", "missed, no warning", "verdict"]
    return markdown_table(columns, cells, [False, False, False, True, True, True, True, True, False])


def _percent(row: Row) -> str:
    return f"{100 * row.coverage:.1f} ± {100 * row.error:.1f}"


def _label(method: str) -> str:
    return f"`{method}`" if method in LABELS else method
