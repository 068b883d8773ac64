"""Study reports as files: the HTML page, tables as Markdown and CSV, figures as PNG and SVG, and checks as JSON."""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from evarl.storage.files import write_bytes
from evarl.studies.page import IndexEntry, index_page, page, verdicts
from evarl.studies.reports import StudyReport
from evarl.studies.tables import csv, markdown


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
    """The number if it is finite, otherwise None."""
    return None if value is None or not math.isfinite(value) else float(value)
