"""Study reports as HTML pages."""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, NamedTuple, get_args
from urllib.parse import quote

from evarl.report.templates import render
from evarl.studies.reports import Cell, ClaimCheck, MeanAndError, ReportTable, StudyReport, Verdict
from evarl.studies.tables import csv, interval, numeric, sort_value, text

ORDER: tuple[Verdict, ...] = ("does not hold", "undecided", "holds")
"""Order in which verdicts are listed: what a reader must not miss comes first."""
assert set(ORDER) == set(get_args(Verdict))
PLURAL: dict[Verdict, str] = {"does not hold": "do not hold", "undecided": "undecided", "holds": "hold"}
SHORT = 28
"""Text up to this length stays on one line of a table, as numbers do."""


class IndexEntry(NamedTuple):
    """One report in the list of reports."""

    name: str
    title: str
    verdicts: Mapping[Verdict, int]
    link: str
    """Relative to the list."""


def page(report: StudyReport) -> str:
    """HTML page of a study report."""
    checks = sorted(report.checks, key=lambda check: ORDER.index(check.verdict))
    return render(
        "study.html",
        title=report.title,
        report=report,
        tally=_tally(verdicts(report)),
        checks=[_check(check) for check in checks],
        tables=[_table(table) for table in report.tables],
    )


def index_page(entries: Iterable[IndexEntry], title: str = "Results of the paper, reproduced") -> str:
    """HTML page that links several reports."""
    shown = [
        {"name": name, "title": heading, "tally": _tally(counts), "link": quote(link)}
        for name, heading, counts, link in entries
    ]
    return render("studies_index.html", title=title, entries=shown)


def verdicts(report: StudyReport) -> dict[Verdict, int]:
    """Number of claims with each verdict."""
    counted = Counter(check.verdict for check in report.checks)
    return {verdict: counted[verdict] for verdict in ORDER}


def _tally(counts: Mapping[Verdict, int]) -> list[dict[str, Any]]:
    """The verdicts that occur, with their counts as text, in the order in which they are read."""
    return [
        {"verdict": one, "count": count, "text": f"{count} {one if count == 1 else PLURAL[one]}"}
        for one in ORDER
        if (count := counts.get(one, 0))
    ]


def _check(check: ClaimCheck) -> dict[str, Any]:
    """A claim with its numbers as text, and the coordinates of its drawing."""
    effect, bounds = interval(check.effect, check.interval)
    return vars(check) | {
        "effect": None if check.effect is None else effect,
        "bounds": bounds,
        "level": f"{100 * check.confidence:.4g}\u202f%",
        "drawing": _drawing(check),
    }


def _drawing(check: ClaimCheck) -> dict[str, Any] | None:
    """Positions of effect and interval; zero is in the middle for every claim, so that the list can be scanned."""
    values = [*(check.interval or ()), *([] if check.effect is None else [check.effect])]
    if not all(map(isfinite, values)):
        return None
    reach = max(map(abs, values), default=0.0) or 1.0
    places = [f"{100 + 92 * value / reach:.1f}" for value in values]
    return {
        "interval": places[:2] if check.interval else None,
        "effect": None if check.effect is None else places[-1],
    }


def _table(table: ReportTable) -> dict[str, Any]:
    numbers = [numeric(table, column) for column in range(len(table.columns))]
    return vars(table) | {
        "csv": csv(table).encode(),
        "heads": list(zip(table.columns, numbers, strict=True)),
        "rows": [
            [
                _cell(cell, numbers[column]) | {"strong": (row, column) in table.emphasised}
                for column, cell in enumerate(cells)
            ]
            for row, cells in enumerate(table.rows)
        ],
    }


def _cell(cell: Cell, number: bool) -> dict[str, Any]:
    """One cell: text, the part of it that is a standard error, and the value it is sorted by."""
    shown, sign, error = text(cell), "", ""
    if isinstance(cell, MeanAndError) and not shown.startswith("("):
        shown, sign, error = shown.partition(" ± ")
    value = sort_value(cell)
    return {
        "text": shown,
        "error": sign + error,
        "kind": "number" if number else "short" if len(text(cell)) <= SHORT else "",
        "value": value,
        "missing": value is None and not isinstance(cell, str),
    }
