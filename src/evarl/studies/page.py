"""Findings as one page of HTML."""

from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from math import isfinite
from typing import NamedTuple, get_args
from urllib.parse import quote

from evarl.report.document import data_address, document, listing, paragraphs, settings_list
from evarl.studies.findings import Cell, Check, Findings, Measured, Picture, Table, Verdict
from evarl.studies.tables import csv, interval, numeric, sort_value, text

ORDER: tuple[Verdict, ...] = ("does not hold", "undecided", "holds")
"""What a reader must not miss comes first."""
assert set(ORDER) == set(get_args(Verdict))
SYMBOLS: dict[Verdict, str] = {"does not hold": "✕", "undecided": "?", "holds": "✓"}
SHORT = 28
"""Words up to so many letters stay on one line of a table, as numbers do."""


class Entry(NamedTuple):
    """One report in a list of reports."""

    name: str
    title: str
    verdicts: Mapping[Verdict, int]
    link: str
    """Relative to the list."""


def page(findings: Findings) -> str:
    """The report."""
    checks = sorted(findings.checks, key=lambda check: ORDER.index(check.verdict))
    sections = {
        "Claims": checks and _KEY + listing("checks", map(_check, checks)),
        "What the paper claims": findings.paper and f'<div class="paper">{paragraphs(findings.paper)}</div>',
        "Tables": "".join(map(_table, findings.tables)),
        "Figures": "".join(map(_picture, findings.pictures)),
        "Notes": listing("notes", (f"<li>{paragraphs(note)}</li>" for note in findings.notes)),
        "How this was made": settings_list(findings.about),
    }
    filled = [(title.lower().replace(" ", "-"), title, body) for title, body in sections.items() if body]
    contents = "".join(f'<li><a href="#{anchor}">{title}</a></li>' for anchor, title, _ in filled)
    body = (
        f'<header><p class="eyebrow">Reproduction <code>{escape(findings.name)}</code></p>'
        f'<h1>{escape(findings.title)}</h1><p class="summary">{summary(verdicts(findings))}</p>'
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav></header><main>'
        + "".join(
            f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{title}</h2>{inside}</section>'
            for anchor, title, inside in filled
        )
        + "</main>"
    )
    return document(findings.title, body)


def index_page(entries: Iterable[Entry], title: str = "Results of the paper, reproduced") -> str:
    """A page that links several reports."""
    items = [
        f'<li><h2><a href="{escape(quote(link))}">{escape(heading)}</a></h2>'
        f"<code>{escape(name)}</code>{_tally(counts)}</li>"
        for name, heading, counts, link in entries
    ]
    body = (
        f"<header><h1>{escape(title)}</h1></header><main>{listing('reports', items) or '<p>No reports yet.</p>'}</main>"
    )
    return document(title, body)


def verdicts(findings: Findings) -> dict[Verdict, int]:
    """How many claims got which verdict."""
    counted = Counter(check.verdict for check in findings.checks)
    return {verdict: counted[verdict] for verdict in ORDER}


def summary(counts: Mapping[Verdict, int]) -> str:
    """The verdicts in one line.

    >>> summary({"holds": 2, "does not hold": 1})
    '<b>3 claims:</b> 1 does not hold, 2 hold.'
    """
    total = sum(counts.values())
    if not total:
        return "No claims were checked."
    return f"<b>{total} claim{'s' if total > 1 else ''}:</b> {', '.join(said for _, said in _said(counts))}."


def _said(counts: Mapping[Verdict, int]) -> list[tuple[Verdict, str]]:
    """The verdicts that occur, with their numbers, in the order in which they are read."""
    plural: dict[Verdict, str] = {"does not hold": "do not hold", "undecided": "undecided", "holds": "hold"}
    return [(one, f"{n} {one if n == 1 else plural[one]}") for one in ORDER if (n := counts.get(one, 0))]


def _tally(counts: Mapping[Verdict, int]) -> str:
    """The verdicts as badges."""
    badges = listing("tally", (f"<li>{_badge(verdict, said)}</li>" for verdict, said in _said(counts)))
    return badges or f'<p class="quiet">{summary(counts)}</p>'


def _badge(verdict: Verdict, words: str) -> str:
    """Word, symbol and colour: the word alone is enough."""
    kind = verdict.replace(" ", "-")
    return f'<p class="badge {kind}"><span aria-hidden="true">{SYMBOLS[verdict]}</span> {words}</p>'


_KEY = (
    '<p class="quiet">Effects are drawn with their intervals beside a line at zero: what lies to its right speaks for the '
    "claim. A claim is undecided where the interval contains both answers.</p>"
)


def _check(check: Check) -> str:
    """A claim: the verdict, what decides it, and what is to be said about it."""
    effect, bounds = interval(check.effect, check.interval)
    kind = check.verdict.replace(" ", "-")
    parts = [
        f'{_badge(check.verdict, check.verdict)}<div><p class="claim">{escape(check.claim)}</p>',
    ]
    if check.effect is not None or bounds:
        level = f"{100 * check.confidence:.4g}\u202f%"
        known = f' <span class="bounds">{level} interval {bounds[0]} to {bounds[1]}</span>' if bounds else ""
        parts.append(f'<p class="effect">{_drawn(check)}<span><b>{effect}</b>{known}</span></p>')
    if check.quantity:
        parts.append(f'<p class="quiet">Effect: {escape(check.quantity)}</p>')
    if check.note:
        parts.append(f'<div class="remark">{paragraphs(check.note)}</div>')
    return f'<li class="check {kind}">{"".join(parts)}</div></li>'


def _drawn(check: Check) -> str:
    """Effect and interval beside zero, which is in the middle for every claim, so that the eye can run down the list."""
    values = [*(check.interval or ()), *([] if check.effect is None else [check.effect])]
    if not all(map(isfinite, values)):
        return ""
    reach = max(map(abs, values)) or 1.0
    places = [f"{100 + 92 * value / reach:.1f}" for value in values]
    bar = f'<path d="M{places[0]} 3.5v9m0-4.5H{places[1]}m0-4.5v9"/>' if check.interval else ""
    dot = "" if check.effect is None else f'<circle cx="{places[-1]}" cy="8" r="4"/>'
    return f'<svg viewBox="0 0 200 16" aria-hidden="true"><path class="zero" d="M4 8h192M100 0v16"/>{bar}{dot}</svg>'


def _table(table: Table) -> str:
    """A table that scrolls by itself where it is too wide, and can be taken away as CSV."""
    anchor = f"table-{escape(table.name)}"
    numbers = [numeric(table, column) for column in range(len(table.columns))]
    heads = "".join(
        f'<th scope="col"{_NUMBER if number else ""}>{escape(name)}</th>'
        for name, number in zip(table.columns, numbers, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            _cell(cell, heading=column == 0, number=numbers[column], strong=(row, column) in table.emphasised)
            for column, cell in enumerate(cells)
        )
        + "</tr>"
        for row, cells in enumerate(table.rows)
    )
    download = data_address("text/csv;charset=utf-8", csv(table).encode())
    return (
        f'<article class="table"><div class="heading"><h3 id="{anchor}">{escape(table.title)}</h3>'
        f'<a class="download" download="{escape(table.name)}.csv" href="{download}" '
        f'aria-label="{escape(table.title)} as CSV">CSV</a></div>'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{anchor}"><table aria-labelledby="{anchor}">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
        + (f'<div class="quiet">{paragraphs(table.note)}</div>' if table.note else "")
        + "</article>"
    )


_NUMBER = ' class="number"'


def _cell(cell: Cell, *, heading: bool, number: bool, strong: bool) -> str:
    """One cell, with what the script sorts by: a number, words, or nothing, which stays at the end."""
    value = sort_value(cell)
    kind = _NUMBER if number else ' class="short"' if len(text(cell)) <= SHORT else ""
    key = "" if isinstance(cell, str) else " data-missing" if value is None else f' data-value="{value}"'
    shown = escape(text(cell))
    if isinstance(cell, Measured) and not shown.startswith("("):
        mean, sign, error = shown.partition(" ± ")
        shown = f'{mean}<span class="error">{sign}{error}</span>' if sign else mean
    shown = f"<strong>{shown}</strong>" if strong else shown
    return f'<th scope="row"{kind}{key}>{shown}</th>' if heading else f"<td{kind}{key}>{shown}</td>"


def _picture(picture: Picture) -> str:
    """As an image, not inline: Matplotlib's ids would clash, and an image can run nothing."""
    source = data_address("image/svg+xml", picture.svg) if picture.svg else data_address("image/png", picture.png)
    caption = escape(picture.caption)
    return (
        f'<figure id="figure-{escape(picture.name)}"><div class="card"><img src="{source}" alt="{caption}"></div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )
