"""The certificate as a page: what is stated, with which confidence, under which assumptions, and what would make it invalid."""

import dataclasses
from typing import Any

import numpy as np

from evarl.certificates.certificate import Certificate
from evarl.certificates.claims import CLAIMS
from evarl.certificates.conclusions import percent
from evarl.certificates.explanations import Picture, meaning
from evarl.certificates.protocol import Protocol
from evarl.report.drawing import COLOURS, rendered
from evarl.report.templates import render

BADGES = {
    "certified": ("holds", "✓"),
    "bounded": ("neutral", ""),  # no threshold was given
    "not certified": ("undecided", "?"),
    "out of budget": ("undecided", "?"),
    "refuted": ("does-not-hold", "✕"),
}
STYLES = {"mean": (COLOURS[6], ":"), "threshold": (COLOURS[1], "--"), "J is at most": (COLOURS[2], "-")}


def page(certificate: Certificate, name: str) -> str:
    """The page of a certificate; `name` is that of its file."""
    protocol, conclusion = certificate.protocol, certificate.conclusion
    seen = {name: np.asarray(column) for name, column in certificate.evidence.items()}
    picture = CLAIMS[protocol.claim].picture(protocol, conclusion, seen)
    shown = conclusion.outcome in ("certified", "bounded")
    kind, symbol = BADGES[conclusion.outcome]
    return render(
        "certificate.html",
        title=f"{protocol.claim}: {conclusion.outcome}",
        subject="Certificate for" if shown else "Result of a test of",
        protocol=protocol,
        conclusion=conclusion,
        kind=kind,
        symbol=symbol,
        confidence=percent(certificate.confidence),
        effort=_effort(protocol, conclusion.rollouts),
        meaning=_meaning(certificate, meaning(protocol, seen)),
        figure=_figure(picture),
        caption=picture.caption,
        assumptions=_assumptions(protocol),
        files=", ".join(sorted(protocol.files)),
        binding=_binding(certificate, name),
    )


def _effort(protocol: Protocol, rollouts: int) -> str:
    if CLAIMS[protocol.claim].other_policies:
        each = f"{protocol.rollouts:,} rollouts each"
        return f"{len(protocol.calibration)} other policies with {each}, and none of this one"
    if CLAIMS[protocol.claim].about_sites:
        here = ", and the test on this site alone" if protocol.site else ""
        return f"{protocol.sites} calibration sites of {protocol.world} with {protocol.rollouts:,} rollouts each{here}"
    return f"{rollouts:,} rollouts in {protocol.world}"


def _meaning(certificate: Certificate, explained: str) -> list[str]:
    """Paragraphs."""
    protocol, conclusion = certificate.protocol, certificate.conclusion
    parts = [
        f"At most 1 in {1 / protocol.error:.3g} statements that are made in this way are false. This holds for any number of "
        "rollouts and any distribution of returns; no normal distribution is assumed. It does not hold for several certificates "
        "at once: their probabilities of error add up.",
        explained,
    ]
    if conclusion.outcome == "certified" and protocol.threshold is not None:
        parts.append(f"The threshold was {protocol.threshold:.15g}; it is reached.")
    elif conclusion.outcome == "refuted":
        parts.append("The threshold is not reached, with the confidence stated above.")
    elif conclusion.outcome in ("not certified", "out of budget"):
        parts.append("The claim is neither shown nor refuted: these rollouts are compatible with both.")
    if certificate.earlier:
        parts.append(
            f"Earlier tests of this claim about this policy: {len(certificate.earlier)}. The confidence stated here is "
            f"that all of these tests are right; of this one alone it would be {percent(conclusion.confidence)}."
        )
    return parts


def _assumptions(protocol: Protocol) -> list[str]:
    rule = f"stopping rule (at {protocol.rollouts:,} at the latest)" if protocol.sequential else "number of rollouts"
    found = [
        f"Deployment is the world {protocol.world} with its start states, at most {protocol.horizon} steps per episode. "
        "Nothing is stated about another world.",
        "Rollouts are independent. Each was continued to its own end, and all that were started are counted.",
        f"Policy, evaluator, assessment, level, range and {rule} were fixed and recorded before the first rollout. The random "
        "numbers are derived from this record; other random numbers are another test, and are counted.",
        f"The random numbers also depend on the nonce {protocol.nonce!r}. If you chose it after you knew the plan "
        f"{protocol.plan[:16]}…, nobody could choose them; otherwise verify with fresh rollouts."
        if protocol.nonce
        else "There is no nonce, so the issuer could have tried protocols until one was lucky. evarl verify therefore makes "
        "fresh rollouts; rely on its result, not on this page alone.",
    ]
    if protocol.outside:
        found.append(
            f"The policy was not trained by this package: {protocol.outside}. The SHA-256 of its file covers its parameters and "
            "its code, and whoever verifies gives the policy anew. Libraries that it calls are not part of it."
        )
    if protocol.two_valued:
        found.append("Every return is one of the two ends of the range. This was stated by the issuer.")
    if protocol.range_from is not None:
        stated = "as stated by the issuer, who must not have derived it from observed returns"
        whose = stated if protocol.range_from == "user" else "by the rules of the world"
        found.append(f"Every possible return lies between {protocol.low:.6g} and {protocol.high:.6g}, {whose}.")
    if CLAIMS[protocol.claim].other_policies:
        found.append(
            f"This policy and the {len(protocol.calibration)} others were trained independently and in the same way; they differ "
            "by their seeds alone, and this one was not selected by its results."
        )
    if CLAIMS[protocol.claim].about_sites:
        site = (
            "It was drawn, too." if protocol.drawn else "This site was drawn like them, and not picked for its context."
        )
        found.append(
            f"The contexts of the {protocol.sites} calibration sites were drawn independently ({', '.join(protocol.contexts)}), "
            "and on each the test was taken once, as it is configured. "
            + (site if protocol.site else "So are new sites.")
        )
    if protocol.candidates:
        found.append(
            f"It is one of {len(protocol.candidates)} candidates, tested in the order of their predictions until the first "
            f"failed. The family-wise error, the probability that any of them is certified and does not reach "
            f"{protocol.threshold:.15g}, is at most {protocol.alpha:g}, without earlier tests."
        )
    return found


def _binding(certificate: Certificate, name: str) -> dict[str, Any]:
    """Everything that the certificate refers to, as a table of settings."""
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


def _figure(picture: Picture) -> bytes:
    """The histogram as SVG, and under it its lines within the range of possible returns."""

    def draw(figure: Any) -> None:
        panel, whole = (
            (figure.subplots(), None) if picture.range is None else figure.subplots(2, 1, height_ratios=(5, 1))
        )
        values = picture.values
        bins = min(60, max(8, int(len(values) ** 0.5)))
        panel.hist(values, bins=bins, color=COLOURS[5], edgecolor="white", linewidth=0.5)
        for name, place in picture.lines.items():
            colour, style = STYLES.get(name, (COLOURS[0], "-"))
            panel.axvline(place, color=colour, linestyle=style, linewidth=2, label=f"{name} {place:.4g}")
            if whole is not None:
                whole.axvline(place, color=colour, linestyle=style, linewidth=2)
        if picture.lines:
            panel.legend(frameon=False)
        panel.set_xlabel(picture.label)
        panel.set_ylabel("number")
        if whole is not None and picture.range is not None:
            low, high = picture.range
            whole.axvspan(float(values.min()), float(values.max()), color=COLOURS[5], alpha=0.5, linewidth=0)
            whole.set_xlim(low, high)
            whole.set_yticks([])
            whole.set_xlabel(f"possible returns, {low:.6g} to {high:.6g}; shaded: observed returns")

    (svg,) = rendered("returns", (7.2, 3.1 if picture.range is None else 4.0), draw, ("svg",))
    return svg
