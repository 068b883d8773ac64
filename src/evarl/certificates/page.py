"""The certificate as a page that somebody who must decide can read: what is promised, how surely, and what would void it."""

import dataclasses
from html import escape
from typing import Any

import numpy as np

from evarl.certificates.certificate import Certificate
from evarl.certificates.conclusions import percent
from evarl.certificates.protocol import Protocol
from evarl.report.document import data_address, document, listing, paragraphs, settings_list
from evarl.report.drawing import COLOURS, rendered

BADGES = {
    "certified": ("holds", "✓"),
    "bounded": ("holds", "✓"),
    "not certified": ("undecided", "?"),
    "out of budget": ("undecided", "?"),
    "rejected": ("does-not-hold", "✕"),
}


def page(certificate: Certificate, name: str) -> str:
    """One page; `name` is that of the file it stands for."""
    protocol, conclusion = certificate.protocol, certificate.conclusion
    kind, symbol = BADGES[conclusion.outcome]
    sections = {
        "What this means": paragraphs(_meaning(certificate)),
        "What was seen": _figure(certificate),
        "What was assumed": listing("notes", (f"<li><p>{escape(one)}</p></li>" for one in _assumptions(protocol))),
        "What would void it": listing("notes", (f"<li><p>{escape(one)}</p></li>" for one in _voids(certificate))),
        "What it binds": settings_list(_binding(certificate, name)),
    }
    body = (
        f'<header><p class="eyebrow">{_title(certificate)} the policy of seed {protocol.seed} '
        f"<code>{protocol.policy[:12]}</code></p>"
        f"<h1>{escape(conclusion.statement)}</h1>"
        f'<p class="summary"><span class="badge {kind}"><span aria-hidden="true">{symbol}</span> {conclusion.outcome}</span> '
        f"at confidence {percent(certificate.confidence)}, from {_effort(protocol, conclusion.rollouts)}.</p></header><main>"
        + "".join(f"<section><h2>{title}</h2>{inside}</section>" for title, inside in sections.items() if inside)
        + "</main>"
    )
    return document(f"{protocol.claim}: {conclusion.outcome}", body)


def _title(certificate: Certificate) -> str:
    return "Certificate for" if certificate.conclusion.outcome in ("certified", "bounded") else "Result of a test of"


def _effort(protocol: Protocol, rollouts: int) -> str:
    if protocol.claim == "C5":
        each = f"{protocol.rollouts:,} rollouts each"
        return f"{len(protocol.calibration)} other policies with {each}, and none of this one"
    return f"{rollouts:,} rollouts in {protocol.world}"


def _meaning(certificate: Certificate) -> str:
    """In words."""
    protocol, conclusion = certificate.protocol, certificate.conclusion
    seen = certificate.evidence.get("returns", ())
    least = f" The least of the {len(seen):,} that were seen is {min(seen):.4g}." if seen else ""
    parts = [
        f"Of statements that are made in this way, 1 in {1 / protocol.error:.3g} at most is false on average. This holds however "
        "many rollouts there are and whatever the distribution of returns; no normal distribution is assumed. Several "
        "certificates for one policy are not all right at once with this confidence.",
        {
            "J": "J is what an episode returns on average, later rewards discounted by "
            f"{protocol.discount:g} per step. Single episodes return less, and some may return much less.{least}",
            "C2": f"There are two numbers. Of new episodes, {percent(1 - protocol.alpha)} or more return what is stated, "
            "averaged over start states as they occur in deployment; it is no promise for each of them. That this is so is "
            f"itself said with a confidence of {percent(conclusion.confidence)}.{least}",
            "C3": "V̂ is what the evaluator predicts from the policy's assessment. L is lower by a margin. It may still be too "
            "high for some start states, by no more than is stated on average over all of them.",
            "C4": "The error is that of the evaluator's predictions against the true values of start states, without the noise "
            "of single episodes.",
            "C5": "This policy was assessed but not deployed. The confidence is over training, calibration and this policy "
            "together, for policies that are trained in the same way.",
        }[protocol.claim],
    ]
    if conclusion.outcome == "certified" and protocol.threshold is not None:
        parts.append(f"What was asked for was {protocol.threshold:g}; it is reached.")
    if conclusion.outcome == "rejected":
        parts.append("What was asked for is false, with the confidence stated above.")
    elif conclusion.outcome not in ("certified", "bounded"):
        parts.append("What was asked for was not shown. That is no evidence against the policy.")
    if certificate.earlier:
        parts.append(
            f"This claim about this policy was tested {len(certificate.earlier)} times before. The confidence stated here is "
            f"that all of these tests are right; of this one alone it would be {percent(conclusion.confidence)}."
        )
    return "\n\n".join(parts)


def _assumptions(protocol: Protocol) -> list[str]:
    said = [
        f"Deployment is the world {protocol.world} with its start states, at most {protocol.horizon} steps to an episode. "
        "Where the real world differs, nothing is promised.",
        "Rollouts are independent. Each was followed to its own end, and all that were begun are counted.",
        f"Policy, evaluator, assessment, level, range and {_effort_rule(protocol)} were fixed, and written down, before the "
        "first rollout. The random numbers follow from what was written down; other ones are another test, and are counted.",
    ]
    if protocol.range_from is not None:
        whose = {
            "world": "by the rules of the world",
            "user": "on the word of whoever asked for this certificate, who must not have taken it from returns that were seen",
        }[protocol.range_from]
        said.append(f"Every possible return lies between {protocol.low:.6g} and {protocol.high:.6g}, {whose}.")
    if protocol.claim == "C5":
        said.append(
            f"This policy and the {len(protocol.calibration)} others were trained independently and in the same way; they differ "
            "by their seeds alone, and nobody chose this one for what it showed."
        )
    if protocol.candidates:
        said.append(
            f"It is one of {len(protocol.candidates)} candidates, tested in the order of their predictions until the first "
            f"failed. That any of them was certified to reach {protocol.threshold:g} wrongly has probability at most "
            f"{protocol.alpha:g}, earlier tests apart."
        )
    return said


def _effort_rule(protocol: Protocol) -> str:
    return (
        f"the rule when to stop (at {protocol.rollouts:,} at the latest)"
        if protocol.sequential
        else "number of rollouts"
    )


def _voids(certificate: Certificate) -> list[str]:
    names = ", ".join(sorted(certificate.protocol.files))
    return [
        f"Any change to {names}: `evarl verify` compares every byte and names what has changed.",
        "Another world, horizon, or distribution of start states than those stated here.",
        "Tests of this policy whose results were thrown away because they were not liked.",
    ]


def _binding(certificate: Certificate, name: str) -> dict[str, Any]:
    protocol, conclusion = certificate.protocol, certificate.conclusion
    plain = {k: v for k, v in protocol.to_dict().items() if v not in (None, [], "") and k != "files"}
    for one in plain.get("calibration", []):
        one |= one.pop("files")
    return {
        "command": f"evarl verify {name}",
        "issued": certificate.issued,
        "protocol SHA-256": certificate.protocol_sha256,
        "result": conclusion.numbers | ({} if conclusion.bound is None else {"bound": conclusion.bound}),
        "files, SHA-256": protocol.files,
        "protocol": plain,
        "code": dataclasses.asdict(certificate.code),
        "machine": certificate.machine,
    }


def _figure(certificate: Certificate) -> str:
    """The distribution of what was seen, and the bound."""
    protocol, evidence = certificate.protocol, {k: np.asarray(v) for k, v in certificate.evidence.items()}
    label, lines, caption = "discounted return of an episode", {}, ""
    bound = certificate.conclusion.bound
    if protocol.claim == "C5":
        seen, label = evidence["bounds"] - evidence["predictions"], "lower bound of J less its prediction"
        caption = "Calibration policies: what was shown of their J, less what the evaluator predicted."
        lines = {"margin": certificate.conclusion.numbers["margin"]}
    elif protocol.claim in ("C2", "C3"):
        seen, label = evidence["returns"] - evidence["values"], "return less prediction V̂(s)"
        caption = "Episodes: what they returned, less what the evaluator predicted."
        lines = {} if bound is None else {"margin": bound if protocol.claim == "C2" else -bound}
    elif protocol.claim == "C4":
        seen, label = (
            (evidence["returns"] + evidence["others"]) / 2 - evidence["values"],
            "mean of two returns less V̂(s)",
        )
        caption = (
            "Start states: the mean of two returns, less the prediction. The noise of returns is part of this picture, "
        )
        caption += "and no part of the bound."
    else:
        seen, caption = evidence["returns"], "Returns of the episodes, and what is shown of their mean."
        lines = {"mean": float(seen.mean())} | ({} if bound is None else {"J is at least": bound})
        if protocol.threshold is not None:
            lines["threshold"] = protocol.threshold
    _, svg = rendered("returns", (7.2, 3.1), lambda figure: _draw(figure, seen, label, lines))
    source = data_address("image/svg+xml", svg)
    return (
        f'<figure><div class="card"><img src="{source}" alt="{escape(caption)}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _draw(figure: Any, seen: np.ndarray, label: str, lines: dict[str, float]) -> None:
    panel = figure.subplots()
    panel.hist(seen, bins=min(60, max(8, int(len(seen) ** 0.5))), color=COLOURS[5], edgecolor="white", linewidth=0.5)
    styles = {"mean": (COLOURS[6], ":"), "threshold": (COLOURS[1], "--")}
    for name, place in lines.items():
        colour, style = styles.get(name, (COLOURS[0], "-"))
        panel.axvline(place, color=colour, linestyle=style, linewidth=2, label=f"{name} {place:.4g}")
    if lines:
        panel.legend(frameon=False)
    panel.set_xlabel(label)
    panel.set_ylabel("number")
