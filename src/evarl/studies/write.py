"""Study reports as files: the HTML page, tables as Markdown and CSV, figures as PNG and SVG, and checks as JSON."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, get_args
from urllib.parse import quote

from evarl.report.templates import render
from evarl.storage.files import write_bytes
from evarl.studies.reports import Cell, ClaimCheck, MeanAndError, ReportTable, StudyReport, Verdict
from evarl.studies.tables import csv, interval, markdown, numeric, sort_value, text

PLURAL: dict[Verdict, str] = {"does not hold": "do not hold", "undecided": "undecided", "holds": "hold"}
"""Verdicts in the order in which they are listed, what a reader must not miss first, and how they are said of several claims."""
assert set(PLURAL) == set(get_args(Verdict))
SHORT = 28
"""Text up to this length stays on one line of a table, as numbers do."""


class IndexEntry(NamedTuple):
    """One report in the list of reports."""

    name: str
    title: str
    verdicts: Mapping[Verdict, int]
    link: str
    """Relative to the list."""


def write_report(report: StudyReport, folder: Path) -> Path:
    """Write all files of a report into `folder`, the page last; returns the page's path."""
    contents: dict[str, bytes] = {}
    for table in report.tables:
        contents |= _new(contents, table.name, md=markdown(table).encode(), csv=csv(table).encode())
    for figure in report.figures:
        contents |= _new(contents, figure.name, png=figure.png, svg=figure.svg)
    contents["checks.json"] = _checks(report).encode()
    contents["report.html"] = page(report).encode()
    for name, content in contents.items():
        write_bytes(folder / name, content)
    return folder / "report.html"


def write_index(entries: Iterable[IndexEntry], folder: Path) -> Path:
    """Write `folder`/index.html, which links reports; returns its path."""
    write_bytes(folder / "index.html", index_page(entries).encode())
    return folder / "index.html"


def page(report: StudyReport) -> str:
    """HTML page of a study report."""
    return render(
        "study.html",
        title=report.title,
        report=report,
        tally=_tally(verdicts(report)),
        checks=[_check(check) for check in sorted_checks(report)],
        tables=[_table(table) for table in report.tables],
    )


def index_page(entries: Iterable[IndexEntry], title: str = "Results of the paper, reproduced") -> str:
    """HTML page that links several reports."""
    shown = [
        {"name": name, "title": heading, "tally": _tally(counts), "link": quote(link)}
        for name, heading, counts, link in entries
    ]
    return render("studies_index.html", title=title, entries=shown)


def sorted_checks(report: StudyReport) -> list[ClaimCheck]:
    """The claims in the order in which readers should see them."""
    return sorted(report.checks, key=lambda check: list(PLURAL).index(check.verdict))


def verdicts(report: StudyReport) -> dict[Verdict, int]:
    """Number of claims with each verdict."""
    counted = Counter(check.verdict for check in report.checks)
    return {verdict: counted[verdict] for verdict in PLURAL}


def _new(contents: dict[str, bytes], name: str, **kinds: bytes) -> dict[str, bytes]:
    """Files of one name; a bad name or a second one of the same name is a mistake of who made the report."""
    if not re.fullmatch(r"[A-Za-z0-9-]+", name):
        raise ValueError(f"{name!r} cannot name a file: letters, digits and dashes can")
    named = {f"{name}.{kind}": content for kind, content in kinds.items()}
    if twice := named.keys() & contents.keys():
        raise ValueError(f"two tables or two figures are called {name!r}: {', '.join(sorted(twice))}")
    return named


def _checks(report: StudyReport) -> str:
    """Claims and verdicts in the order of the report; numbers that are not finite become null."""
    checks = [
        asdict(check)
        | {"effect": _finite(check.effect), "interval": check.interval and [*map(_finite, check.interval)]}
        for check in report.checks
    ]
    record = {"name": report.name, "title": report.title, "verdicts": verdicts(report), "checks": checks}
    return json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else float(value)


def _tally(counts: Mapping[Verdict, int]) -> list[dict[str, Any]]:
    """The verdicts that occur, with their counts as text, in the order in which they are read."""
    return [
        {"verdict": one, "count": count, "text": f"{count} {one if count == 1 else plural}"}
        for one, plural in PLURAL.items()
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
    effect = None if check.effect is None else places[-1]
    return {"interval": places[:2] if check.interval else None, "effect": effect}


def _table(table: ReportTable) -> dict[str, Any]:
    numbers = numeric(table)
    rows = [
        [
            _cell(cell, numbers[column]) | {"strong": (row, column) in table.emphasised}
            for column, cell in enumerate(cells)
        ]
        for row, cells in enumerate(table.rows)
    ]
    heads = list(zip(table.columns, numbers, strict=True))
    return vars(table) | {"csv": csv(table).encode(), "heads": heads, "rows": rows}


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
