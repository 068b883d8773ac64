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
from evarl.studies.power import FEASIBLE, counted
from evarl.studies.reports import Cell, ClaimCheck, MeanAndError, ReportTable, StudyReport, Verdict
from evarl.studies.tables import csv, interval, markdown, number, numeric, sort_value, text

PLURAL: dict[Verdict, str] = {"does not hold": "do not hold", "undecided": "undecided", "holds": "hold"}
"""Verdicts in the order in which they are listed, what a reader must not miss first, and how they are said of several claims."""
assert set(PLURAL) == set(get_args(Verdict))
REACHES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Lengths of the axis of effects, as parts of their baselines; what is longer is cut and has an arrow."""
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
        checks=[_check(check, reach(report.checks)) for check in sorted_checks(report)],
        reach=f"{100 * reach(report.checks):.4g}\u202f%",
        powered=any(power_text(check) for check in report.checks),
        drawn=any(_relative(check) for check in report.checks),
        extent=extent(report.about),
        smoke=str(report.about.get("scale", "")).startswith("smoke"),
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
        | {"effect": _finite(check.effect), "detectable": _finite(check.detectable)}
        | {"interval": check.interval and [*map(_finite, check.interval)]}
        for check in report.checks
    ]
    scale = str(report.about.get("scale", "")).partition(":")[0]
    about = {"name": report.name, "title": report.title, "scale": scale, "verdicts": verdicts(report)}
    record = about | {"checks": checks}
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


def extent(about: Mapping[str, Any]) -> str:
    """Scale and seeds of a report for its head.

    >>> extent({"scale": "laptop: hours on two cores", "seeds": {"a": "0 to 2", "b": "0 to 9"}})
    'scale laptop, 3 to 10 seeds of each condition'
    """
    scale = str(about.get("scale", "")).partition(":")[0]
    listed = about.get("seeds", {})
    spans = [str(one).split(" to ") for one in listed.values()] if isinstance(listed, Mapping) else []
    counts = sorted({int(last) - int(first) + 1 for first, last in spans})
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else ""
    plural = "seed" if counts == [1] else "seeds"
    told = [f"scale {scale}" if scale else "", f"{seeds} {plural} of each condition" if seeds else ""]
    return ", ".join(filter(None, told))


def _check(check: ClaimCheck, within: float) -> dict[str, Any]:
    """A claim with its numbers as text, and the coordinates of its drawing."""
    effect, bounds = interval(check.effect, check.interval)
    return vars(check) | {
        "effect": None if check.effect is None else effect,
        "bounds": bounds,
        "level": f"{100 * check.confidence:.4g}\u202f%",
        "share": _share(check),
        "power": power_text(check),
        "drawing": _drawing(check, within),
    }


def power_text(check: ClaimCheck) -> str:
    """What an undecided claim would need, and what its seeds can decide; empty for others."""
    if check.verdict != "undecided" or check.seeds_needed is None or check.detectable is None:
        return ""
    if check.detectable == 0 and check.effect == 0:
        return "undecided; every difference is 0, which no number of seeds decides"
    size = "an effect of this size" if check.parts == 1 else f"effects of the sizes of all {check.parts}"
    many = f"{counted(check.seeds_needed)} seeds would decide {size}"
    if check.seeds_needed > FEASIBLE:
        many += ", which is not feasible"
    return f"undecided; {many}; {check.seeds} seeds decide one of {number(check.detectable)} or more"


def _relative(check: ClaimCheck) -> list[float]:
    """The effect and the ends of its interval as parts of what it is compared with; empty where that is not known."""
    if check.baseline is None or check.effect is None:
        return []
    values = [value / check.baseline for value in (check.effect, *(check.interval or ()))]
    return values if all(map(isfinite, values)) else []


def _share(check: ClaimCheck) -> str:
    """The effect as a percentage of what it is compared with."""
    if not (relative := _relative(check)) or abs(relative[0]) >= 10:
        return ""
    percent = 100 * relative[0]
    written = f"{percent:+.0f}" if abs(percent) >= 10 else f"{percent:+.2g}"
    return written.replace("-", "−") + "\u202f% of the baseline"


def reach(checks: Iterable[ClaimCheck]) -> float:
    """Half the length of the axis on which all effects of a report are drawn: round, and enough for three in four of them."""
    effects = sorted(abs(relative[0]) for check in checks if (relative := _relative(check)))
    wanted = effects[(3 * len(effects) - 1) // 4] if effects else REACHES[-1]
    return next((one for one in REACHES if one >= wanted), REACHES[-1])


def _drawing(check: ClaimCheck, within: float) -> dict[str, Any] | None:
    """Positions of effect and interval on the axis of the report, and on which sides the interval goes on."""
    if not (relative := _relative(check)):
        return None
    places = [f"{100 + 92 * max(-1.0, min(1.0, value / within)):.1f}" for value in relative]
    beyond = {"left": min(relative) < -within, "right": max(relative) > within}
    inside = abs(relative[0]) <= within
    return {"interval": places[1:] or None, "effect": places[0] if inside else None} | beyond


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
