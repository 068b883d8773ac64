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
    "bounded": ("neutral", ""),  # nothing was asked for that could hold or not
    "not certified": ("undecided", "?"),
    "out of budget": ("undecided", "?"),
    "refuted": ("does-not-hold", "✕"),
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
        f'<p class="summary"><span class="badge {kind}">{_symbol(symbol)}{conclusion.outcome}</span> '
        f"at confidence {percent(certificate.confidence)}, from {_effort(protocol, conclusion.rollouts)}.</p></header><main>"
        + "".join(f"<section><h2>{title}</h2>{inside}</section>" for title, inside in sections.items() if inside)
        + "</main>"
    )
    return document(f"{protocol.claim}: {conclusion.outcome}", body)


def _symbol(symbol: str) -> str:
    return f'<span aria-hidden="true">{symbol}</span> ' if symbol else ""


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
        f"At most 1 in {1 / protocol.error:.3g} statements that are made in this way are false. This holds for any number of "
        "rollouts and any distribution of returns; no normal distribution is assumed. It does not hold for several certificates "
        "at once: their probabilities of error add up.",
        {
            "J": "J is the mean return of an episode, later rewards discounted by "
            f"{protocol.discount:g} per step. Single episodes can return less, some of them much less.{least}",
            "C2": f"There are two levels. α = {protocol.alpha:g} is the share of new episodes that may return less than stated, "
            "averaged over start states as they occur in deployment; it is no statement about each start state. "
            f"δ = {protocol.delta or 0:g} is the probability that the true share is larger than α.{least}",
            "C3": "V̂ is what the evaluator predicts from the policy's assessment. L is lower by a margin. It may still be too "
            "high for some start states, by no more than is stated on average over all of them.",
            "C4": "The error is that of the evaluator's predictions against the true values of start states, without the noise "
            "of single episodes.",
            "C5": "This policy was assessed but not deployed. The confidence is over training, calibration and this policy "
            "together, for policies that are trained in the same way.",
        }[protocol.claim],
    ]
    parts += _answer(certificate)
    if certificate.earlier:
        parts.append(
            f"Earlier tests of this claim about this policy: {len(certificate.earlier)}. The confidence stated here is "
            f"that all of these tests are right; of this one alone it would be {percent(conclusion.confidence)}."
        )
    return "\n\n".join(parts)


def _answer(certificate: Certificate) -> list[str]:
    """What became of what was asked for."""
    protocol, outcome = certificate.protocol, certificate.conclusion.outcome
    if outcome == "certified" and protocol.threshold is not None:
        return [f"What was asked for was {protocol.threshold:.15g}; it is reached."]
    if outcome == "refuted":
        return ["What was asked for is false, with the confidence stated above."]
    if outcome in ("not certified", "out of budget"):
        return ["What was asked for is neither shown nor refuted: these rollouts are compatible with both."]
    return []


def _assumptions(protocol: Protocol) -> list[str]:
    said = [
        f"Deployment is the world {protocol.world} with its start states, at most {protocol.horizon} steps to an episode. "
        "Where the real world differs, nothing is promised.",
        "Rollouts are independent. Each was followed to its own end, and all that were begun are counted.",
        f"Policy, evaluator, assessment, level, range and {_effort_rule(protocol)} were fixed, and written down, before the "
        "first rollout. The random numbers follow from what was written down; other ones are another test, and are counted.",
        _luck(protocol),
    ]
    if protocol.two_valued:
        said.append(
            "Every return is one of the two ends of the range, on the word of whoever asked for this certificate."
        )
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
            f"failed. That any of them was certified to reach {protocol.threshold:.15g} wrongly has probability at most "
            f"{protocol.alpha:g}, earlier tests apart."
        )
    return said


def _luck(protocol: Protocol) -> str:
    """Who could have chosen the random numbers."""
    if protocol.nonce:
        return (
            f"The random numbers follow from the nonce {protocol.nonce!r} too. If you chose it after you knew the plan "
            f"{protocol.plan[:16]}…, nobody could choose them; otherwise verify with fresh rollouts."
        )
    return (
        "There is no nonce, so the issuer could have tried out protocols until one was lucky. evarl verify makes fresh "
        "rollouts for that reason; rely on what it says, not on this page alone."
    )


def _effort_rule(protocol: Protocol) -> str:
    return (
        f"the rule when to stop (at {protocol.rollouts:,} at the latest)"
        if protocol.sequential
        else "number of rollouts"
    )


def _voids(certificate: Certificate) -> list[str]:
    names = ", ".join(sorted(certificate.protocol.files))
    return [
        f"Any change to {names}: evarl verify compares every byte and names what has changed.",
        "Another world, horizon, or distribution of start states than those stated here.",
        "Tests of this policy that were deleted from the ledger together with their results; a published head of the ledger "
        "shows that there are none.",
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
        "ledger": dataclasses.asdict(certificate.ledger),
        "result": conclusion.numbers | ({} if conclusion.bound is None else {"bound": conclusion.bound}),
        "files, SHA-256": protocol.files,
        "protocol": plain,
        "code": dataclasses.asdict(certificate.code),
        "machine": certificate.machine,
        "platform": certificate.platform,
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
        seen, caption = evidence["returns"], "Returns of the episodes, and what is shown of their mean J."
        lines = {"mean": float(seen.mean())} | ({} if bound is None else {"J is at least": bound})
        if certificate.conclusion.upper is not None:
            lines["J is at most"] = certificate.conclusion.upper
        if protocol.threshold is not None:
            lines["threshold"] = protocol.threshold
        caption += " Below: the same within all returns that are possible."
    shown = protocol.range if protocol.claim == "J" else None
    size = (7.2, 3.1 if shown is None else 4.0)
    _, svg = rendered("returns", size, lambda figure: _draw(figure, seen, label, lines, shown))
    source = data_address("image/svg+xml", svg)
    return (
        f'<figure><div class="card"><img src="{source}" alt="{escape(caption)}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


STYLES = {"mean": (COLOURS[6], ":"), "threshold": (COLOURS[1], "--"), "J is at most": (COLOURS[2], "-")}


def _draw(
    figure: Any, seen: np.ndarray, label: str, lines: dict[str, float], shown: tuple[float, float] | None
) -> None:
    """A histogram with lines, and under it the same lines within the range of possible returns."""
    if shown is None:
        panel, whole = figure.subplots(), None
    else:
        panel, whole = figure.subplots(2, 1, height_ratios=(5, 1))
    panel.hist(seen, bins=min(60, max(8, int(len(seen) ** 0.5))), color=COLOURS[5], edgecolor="white", linewidth=0.5)
    for name, place in lines.items():
        colour, style = STYLES.get(name, (COLOURS[0], "-"))
        panel.axvline(place, color=colour, linestyle=style, linewidth=2, label=f"{name} {place:.4g}")
        if whole is not None:
            whole.axvline(place, color=colour, linestyle=style, linewidth=2)
    if lines:
        panel.legend(frameon=False)
    panel.set_xlabel(label)
    panel.set_ylabel("number")
    if whole is not None and shown is not None:
        whole.axvspan(float(seen.min()), float(seen.max()), color=COLOURS[5], alpha=0.5, linewidth=0)
        whole.set_xlim(*shown)
        whole.set_yticks([])
        whole.set_xlabel(f"all possible returns, {shown[0]:.6g} to {shown[1]:.6g}; shaded: those that were seen")
