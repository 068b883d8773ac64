"""Findings as files: the report to read, and beside it what a paper or a program would take from it."""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from evarl.storage.files import write_bytes
from evarl.studies.findings import Findings
from evarl.studies.page import Entry, index_page, page, verdicts
from evarl.studies.tables import csv, markdown


def write_findings(findings: Findings, folder: Path) -> Path:
    """Write everything into `folder`, the report last, so that it stands for all; gives the report's path."""
    contents: dict[str, bytes] = {}
    for table in findings.tables:
        contents |= _new(contents, table.name, md=markdown(table).encode(), csv=csv(table).encode())
    for picture in findings.pictures:
        contents |= _new(contents, picture.name, png=picture.png, svg=picture.svg)
    contents["checks.json"] = _checks(findings).encode()
    contents["report.html"] = page(findings).encode()
    for name, content in contents.items():
        write_bytes(folder / name, content)
    return folder / "report.html"


def write_index(entries: Iterable[Entry], folder: Path) -> Path:
    """Write `folder`/index.html, which links reports; gives its path."""
    write_bytes(folder / "index.html", index_page(entries).encode())
    return folder / "index.html"


def _new(contents: dict[str, bytes], name: str, **kinds: bytes) -> dict[str, bytes]:
    """Files of one name; a bad name or a second one of the same name is a mistake of who made the findings."""
    if not re.fullmatch(r"[A-Za-z0-9-]+", name):
        raise ValueError(f"{name!r} cannot name a file: letters, digits and dashes can")
    named = {f"{name}.{kind}": content for kind, content in kinds.items()}
    if twice := named.keys() & contents.keys():
        raise ValueError(f"two tables or two pictures are called {name!r}: {', '.join(sorted(twice))}")
    return named


def _checks(findings: Findings) -> str:
    """Claims and verdicts in the order of the findings; what is not finite is null, as JSON has no word for it."""
    checks = [
        asdict(check)
        | {"effect": _finite(check.effect), "interval": check.interval and [*map(_finite, check.interval)]}
        for check in findings.checks
    ]
    said = {"name": findings.name, "title": findings.title, "verdicts": verdicts(findings), "checks": checks}
    return json.dumps(said, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: float | None) -> float | None:
    """A number, if it is one."""
    return None if value is None or not math.isfinite(value) else float(value)
