"""Certificates for 100 independently seeded small runs whose true J is known, and the number of false ones.

Navigation is deterministic and reaches finitely many positions, so that J of a stochastic policy is computed exactly, by backward
induction. `make certificates` writes the table into docs/certification.md; runs are kept in runs/certificates.
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Float

import evarl
from benchmarks.coverage import PAGE
from evarl import bounds
from evarl.certificates import issue_certificate
from evarl.report.markdown import fill_page
from evarl.storage.files import write_bytes
from evarl.truth.exact import policy_values, reachable_mdp
from evarl.worlds.world import HostWorld

RESULTS = Path("results/benchmarks/certificates.json")
ALPHA = 0.05
OTHERS = 50
"""Number of calibration policies of new-policy, and of policies that it is tested on."""


def train(path: Path, seeds: int, updates: int, first: int = 0) -> evarl.Run:
    """A small run for each seed; an existing run is used again."""
    if (path / "summary.json").exists():
        return evarl.Run.load(path)
    return evarl.train("navigation", beta=0.05, seed=first, seeds=seeds, updates=updates, out=path)


def true_returns(run: evarl.Run) -> Float[np.ndarray, " seeds"]:
    """The exact J of each seed."""
    assert not isinstance(run.world, HostWorld)
    table, positions = reachable_mdp(run.world)
    shown = jnp.asarray(positions)
    policies = [np.asarray(run.target_policy(seed).probabilities(shown), np.float64) for seed in run.seeds]
    return np.array([policy_values(table, p / p.sum(-1, keepdims=True), run.world.horizon)[0] for p in policies])


def main(seeds: int = 100, updates: int = 100, out: Path = Path("runs/certificates"), page: Path = PAGE) -> None:
    """Train, certify every policy, compare with the truth, and fill in the page.

    Args:
        seeds: number of independent training runs.
        updates: of each; few, so that policies differ.
        out: directory of the runs and their certificates.
        page: file that the table is written to.
    """
    run = train(out, seeds, updates)
    truth = true_returns(run)
    lines = ["| claim | rollouts | certificates | false | mean gap |", "| --- " * 5 + "|"]
    record = {"seeds": seeds, "updates": updates, "true J": truth.tolist()}
    for rollouts in (50, 200, 1000):
        terms = evarl.Terms(alpha=ALPHA, rollouts=rollouts)
        lower = []
        for seed in run.seeds:
            bound = issue_certificate(run.path, terms, seed=seed, again=True).certificate.conclusion.bound
            assert bound is not None
            lower.append(bound)
            print(
                f"mean-return, {rollouts} rollouts, seed {seed}: at least {bound:.3f}, truly {truth[len(lower) - 1]:.3f}",
                flush=True,
            )
        lines.append(_line("mean-return", rollouts, np.array(lower), truth))
        record[f"bounds from {rollouts} rollouts"] = lower
    others = train(out.with_name(f"{out.name}-others"), OTHERS, updates, first=seeds)
    lower = []
    for seed in run.seeds[:OTHERS]:
        terms = evarl.Terms(alpha=ALPHA, rollouts=200)
        found = issue_certificate(run.path, terms, seed=seed, from_policies=[others.path]).certificate
        assert found.conclusion.bound is not None
        lower.append(found.conclusion.bound)
        print(f"new-policy, seed {seed}: at least {lower[-1]:.3f}, truly {truth[len(lower) - 1]:.3f}", flush=True)
    # A constant prediction for every policy, as a baseline for the assessment.
    kept = found.evidence["bounds"]
    constant = bounds.conformal_bound(kept, np.zeros(len(kept)), ALPHA, found.protocol.value_error).margin
    lines.append(_line(f"new-policy, from {OTHERS} other policies", 0, np.array(lower), truth[:OTHERS]))
    lines.append(_line("the same, without an evaluator", 0, np.full(OTHERS, constant), truth[:OTHERS]))
    kept_bounds = {"new-policy": lower, "new-policy without an evaluator": constant}
    write_bytes(RESULTS, (json.dumps(record | kept_bounds) + "\n").encode())
    text = f"{seeds} policies after {updates} updates, true J from {truth.min():.2f} to {truth.max():.2f}; at α = {ALPHA:g}.\n\n"
    fill_page(page, {"certificates": text + "\n".join(lines)})
    print("\n".join(lines))


def _line(claim: str, rollouts: int, lower: np.ndarray, truth: np.ndarray) -> str:
    gap = truth - lower
    return f"| {claim} | {rollouts or '—'} | {len(truth)} | {int((gap < 0).sum())} | {gap.mean():.2f} |"


if __name__ == "__main__":
    tyro.cli(main)
