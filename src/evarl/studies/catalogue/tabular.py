"""`tabular`: evaluation error L and return J against β in random tabular MDPs, and the bound in closed form.

Runs 1 000 random worlds (5 states, 2 actions, γ = 0.9) × 6 β, policies by exact gradient: `evarl.theory.tabular_study`.
"""

from itertools import pairwise
from typing import Any

from scipy import stats

from evarl.studies.figures import make_figure
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import Cell, ClaimCheck, MeanAndError, ReportFigure, ReportTable, StudyResults, Verdict
from evarl.studies.scales import StudyScale
from evarl.theory.tabular_summary import PROCEDURES

TITLE = "Performance and evaluability in random tabular worlds"
PAPER = (
    "With a fixed evaluator, a larger evaluability coefficient β never raises the evaluation error L of the optimal policy "
    "and never raises its return J (figure only). In closed form, J ≤ ε√(μᵀQ†μ) for all values with L ≤ ε²."
)

MAIN = "best of starts"
"""The procedure that is checked and drawn: the closest to the optimum that the proposition is about."""
CONFIDENCE = 0.95
MARGIN = 0.05
"""A claim holds only if every step's interval excludes an increase of this share of the overall decrease."""
NAMES = {"L": "evaluation error L", "J": "expected return J"}


def jobs(scale: StudyScale) -> list[Job]:
    """One job: all trials are one compiled program."""
    return [Job("tabular", "tabular", {"trials": scale.trials}, weight=2.0)]


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Checks, tables and a figure of the one job."""
    (job,) = jobs(scale)
    if not store.finished(job):
        return StudyResults()
    result = store.result(job)
    seconds = result["seconds"]
    spent = f"{result['trials']} trials took {seconds['run']:.1f} s after {seconds['compile']:.1f} s of compilation."
    return StudyResults(checks(result), tables(result), figures(result), (spent,))


def checks(result: dict[str, Any]) -> tuple[ClaimCheck, ...]:
    """Checks of the proposition for L and for J, and of the bound in closed form."""
    return (*(_monotone(result, quantity) for quantity in NAMES), _bound(result))


def tables(result: dict[str, Any]) -> tuple[ReportTable, ...]:
    """Means by β, paired steps of β, and the share of trials in which the proposition is observed."""
    betas, procedures = result["betas"], result["procedures"]
    main, single = procedures[MAIN], procedures["one start"]
    overall = [MeanAndError(main[quantity]["overall_mean"], main[quantity]["overall_se"]) for quantity in NAMES]
    return (
        ReportTable(
            name="tabular-tradeoff",
            title="L and J by β",
            columns=("β", "L", "J", "L, one start", "J, one start"),
            rows=tuple((beta, *_measured(main, "", i), *_measured(single, "", i)) for i, beta in enumerate(betas)),
            note=f"Mean ± standard error over {result['trials']} random worlds. L and J are those of the best of "
            f"{result['restarts']} starts, the columns on the right those of the first start alone.",
        ),
        ReportTable(
            name="tabular-steps",
            title="Decrease from one β to the next, within a world",
            columns=("β", "decrease of L", "decrease of J"),
            rows=(
                *((f"{a:g} → {b:g}", *_measured(main, "step_", i)) for i, (a, b) in enumerate(pairwise(betas))),
                (f"{betas[0]:g} → {betas[-1]:g}", *overall),
            ),
            note="Mean ± standard error of the paired differences; positive where the number falls.",
        ),
        ReportTable(
            name="tabular-monotone",
            title="Share of worlds in which the number never rises with β",
            columns=("policy", "which is", "share, L", "largest rise of L", "share, J", "largest rise of J"),
            rows=tuple(
                (
                    name,
                    meaning,
                    *(procedures[name][q][number] for q in NAMES for number in ("share", "largest_violation")),
                )
                for name, meaning in PROCEDURES.items()
            ),
            note=f"A rise counts from {result['tolerance']:g}. The common set cannot violate the proposition, whatever "
            "was trained: its row is a theorem and no evidence. Its J − βL is at most "
            f"{max(result['gap']['largest']):.1e} above the best of starts.",
        ),
    )


def figures(result: dict[str, Any]) -> tuple[ReportFigure, ...]:
    """L and J against β, with standard errors, over a logarithmic axis with a linear part at β = 0."""
    betas, found = result["betas"], result["procedures"][MAIN]

    def draw(figure: Any) -> None:
        for panel, quantity, colour in zip(figure.subplots(1, 2), NAMES, ("#d55e00", "#0072b2"), strict=True):
            style = {"color": colour, "marker": "o", "markersize": 4, "capsize": 3}
            panel.errorbar(betas, found[quantity]["mean"], yerr=found[quantity]["se"], **style)
            panel.set_xscale("symlog", linthresh=next(beta for beta in betas if beta > 0), linscale=0.5)
            panel.set_xticks(betas, [f"{beta:g}" for beta in betas])
            panel.set_xticks([], minor=True)
            panel.margins(x=0.06, y=0.12)
            panel.grid(axis="y", linewidth=0.4, alpha=0.6)
            panel.set(xlabel="evaluability coefficient β", ylabel=NAMES[quantity])

    caption = (
        f"Mean L and mean J against β, with standard errors, over {result['trials']} random worlds of {result['states']} "
        f"states and {result['actions']} actions with a fixed linear evaluator; policies by exact gradient, the best of "
        f"{result['restarts']} starts."
    )
    return (make_figure("tabular-tradeoff", caption, (8.4, 3.4), draw),)


def _measured(found: dict[str, Any], prefix: str, index: int) -> list[Cell]:
    """L and J with their standard errors."""
    return [MeanAndError(found[q][f"{prefix}mean"][index], found[q][f"{prefix}se"][index]) for q in NAMES]


def _monotone(result: dict[str, Any], quantity: str) -> ClaimCheck:
    """Check that the mean never rises from one β to the next.

    All steps and the overall decrease get simultaneous Student's intervals (Bonferroni), so that the family-wise error is at
    most 5 %. The interval of the smallest decrease goes from the lowest lower end to the lowest upper end, which is valid
    wherever all intervals are.
    """
    found, tolerance = result["procedures"][MAIN][quantity], result["tolerance"]
    means = [*found["step_mean"], found["overall_mean"]]
    errors = [*found["step_se"], found["overall_se"]]
    quantile = float(stats.t.ppf(1 - (1 - CONFIDENCE) / (2 * len(means)), result["trials"] - 1))
    lows = [mean - quantile * error for mean, error in zip(means, errors, strict=True)]
    highs = [mean + quantile * error for mean, error in zip(means, errors, strict=True)]
    verdict: Verdict = "undecided"
    if min(highs) < -tolerance:
        verdict = "does not hold"
    elif lows[-1] > tolerance and min(lows[:-1]) > -max(MARGIN * means[-1], tolerance):
        verdict = "holds"
    shares = {name: result["procedures"][name][quantity]["share"] for name in PROCEDURES if name != "common set"}
    return ClaimCheck(
        claim=f"With a fixed evaluator, the mean {NAMES[quantity]} of trained policies is non-increasing in β",
        verdict=verdict,
        effect=min(means[:-1]),
        interval=(min(lows[:-1]), min(highs[:-1])),
        quantity=f"smallest mean decrease of {quantity} from one β to the next, within a world",
        confidence=CONFIDENCE,
        note=f"Paired t over {result['trials']} worlds, Bonferroni over {len(means) - 1} steps and the overall decrease "
        f"of {means[-1]:.4g} [{lows[-1]:.4g}, {highs[-1]:.4g}]. It holds if that one is significant and no step can be a "
        f"rise of {MARGIN:.0%} of it; it does not hold if anything rises significantly. Single worlds that obey: "
        f"{', '.join(f'{share:.1%} ({name})' for name, share in shares.items())}.",
    )


def _bound(result: dict[str, Any]) -> ClaimCheck:
    """Check of the bound by a counter-example, which can refute it but not confirm it."""
    found = result["bound"]
    feasible = found["loss"] <= found["epsilon"] ** 2
    return ClaimCheck(
        claim="No values with L ≤ ε² have a larger J than ε√(μᵀQ†μ)",
        verdict="does not hold" if feasible and found["slack"] < -result["tolerance"] else "undecided",
        effect=found["slack"],
        interval=None,
        quantity=f"bound minus J of constant values, at ε = {found['epsilon']:g}",
        note=f"Computed, not sampled. ‖Q1‖ = {found['null_norm']:.1e} while μᵀ1 = {found['mass']:g}: v = "
        f"{found['performance']:g} · 1, the values of every policy where each reward is "
        f"{found['performance'] * (1 - result['discount']):.3g}, has L = {found['loss']:.1e}; the bound is "
        f"{found['bound']:.1e}. The condition Qv = μ/2β is missed by {found['residual']:.0%} of its right-hand side at "
        f"best. Of the policies trained here {found['share_refuting']:.1%} exceed the bound at ε = √L, "
        "which says little more: it is 0 for every ε where μ is uniform.",
    )
