"""`make variance`: variance reduction of Monte Carlo by the evaluator and the critic of a run, in navigation.

Navigation is deterministic and has few reachable positions, so that the mean and the variance of G and of G_cv are also computed
exactly, by dynamic programming over positions and time, and compared with the estimates.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from benchmarks.about import about
from benchmarks.coverage import PAGE
from benchmarks.race import ROOT
from evarl.errors import InputError
from evarl.evaluation.controlled import controlled_estimates, frozen_values
from evarl.evaluation.predictors import CRITIC, EVALUATOR
from evarl.report.markdown import fill_page
from evarl.runs.run import Run
from evarl.runs.train import train
from evarl.storage.files import write_bytes
from evarl.truth.exact import policy_values, reachable_mdp
from evarl.worlds.navigation import Navigation
from evarl.worlds.tabular import Tabular

FIGURES = ROOT / "results" / "benchmarks" / "variance.json"


def moments(world: Tabular, policy: np.ndarray, value: np.ndarray | None) -> tuple[float, float]:
    """Mean and variance of G, or with V̂ of G_cv, by backward induction.

    In a deterministic world with one start state the contribution of a step to G_cv is E_π Q̂(s, ·) − γ V̂(s').
    """
    assert world.terminal is not None
    onward = world.transitions * ~world.terminal  # [S, A, S]
    first = second = np.zeros(len(world.rewards))
    for t in reversed(range(world.horizon)):
        counted = world.rewards
        if value is not None:
            behind = world.discount * onward @ value * (t < world.horizon - 1)
            counted = np.sum(policy * (world.rewards + behind), axis=1, keepdims=True) - behind
        to_come, squared = world.discount * onward @ first, world.discount**2 * onward @ second
        second = np.sum(policy * (counted**2 + 2 * counted * to_come + squared), axis=1)
        first = np.sum(policy * (counted + to_come), axis=1)
    mean = world.start @ first
    return float(mean), float(world.start @ second - mean**2)


def exact_figures(run: Run, seed: int, draw: int) -> dict[str, Any]:
    """J, Var(G), and Var(G) / Var(G_cv) with the V̂ of the run and with others that there could be."""
    assert isinstance(run.world, Navigation)
    table, positions = reachable_mdp(run.world)
    logits = run.learner.agent.distribution(run.policy_state(seed), jnp.asarray(positions)).logits
    policy = np.asarray(jax.nn.softmax(logits), np.float64)
    policy /= policy.sum(axis=1, keepdims=True)
    values = {
        name: np.asarray(value(jnp.asarray(positions)), np.float64)
        for name, value in frozen_values(run, seed, draw).items()
    }
    values["0"] = np.zeros(len(positions))
    values["V with all the time ahead"] = policy_values(table, policy, table.horizon)
    values["V without time limit"] = policy_values(table, policy)
    value, variance = moments(table, policy, None)
    ratios = {name: variance / moments(table, policy, one)[1] for name, one in values.items()}
    return {"value": value, "variance": variance, "variance_ratios": ratios}


def measure(run: Run, rollouts: int, draw: int) -> list[dict[str, Any]]:
    """One record for each seed."""
    records = []
    for seed in run.seeds:
        print(f"seed {seed}")
        found = controlled_estimates(run, seed, rollouts, draw=draw)
        said = {name: one.summary._asdict() for name, one in found.items()}
        records.append({"seed": seed, "exact": exact_figures(run, seed, draw), **said})
    return records


def tables(records: list[dict[str, Any]]) -> str:
    """Markdown: the estimates, and the exact ratios."""
    found, others = records[0][EVALUATOR], list(records[0]["exact"]["variance_ratios"])
    said = f"{found['rollouts']} rollouts, {found['extra_steps']} steps looked at for each that is taken."
    names = (EVALUATOR, CRITIC)
    head = ["seed", "J, exactly", "plain", *(f"with the {name}" for name in names)]
    head += [f"variance ratio, {name}" for name in names]
    estimates, ratios = [], []
    for record in records:
        one, exact = [record[name] for name in names], record["exact"]
        cells = [f"{exact['value']:.4f}", f"{one[0]['plain']:.4f} ± {one[0]['plain_error']:.4f}"]
        cells += [f"{each['controlled']:.4f} ± {each['controlled_error']:.4f}" for each in one]
        estimates.append([str(record["seed"]), *cells, *(f"{each['variance_ratio']:.1f}" for each in one)])
        ratios.append([str(record["seed"]), *(f"{exact['variance_ratios'][name]:.1f}" for name in others)])
    exactly = "The exact variance ratios of these V̂, and of others that there could be:"
    return "\n\n".join([said, _table(head, estimates), exactly, _table(["seed", *others], ratios)])


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def main(
    run: Path | None = None, rollouts: int = 65_536, draw: int = 0, page: Path = PAGE, out: Path = FIGURES
) -> None:
    """Train as on top of docs/certification.md unless a run is given, measure, print, and fill in the page.

    Args:
        run: directory of a run in navigation, with an evaluator.
        rollouts: of each seed's final policy.
        draw: fixes everything random.
        page: where the tables go.
        out: file for the figures.
    """
    trained = train("navigation", beta=0.05, seeds=3, updates=600) if run is None else Run.load(run)
    if not isinstance(trained.world, Navigation) or trained.assessment is None:
        raise InputError(f"run: {trained.path} is not what is wanted here, a run in navigation with an evaluator")
    records = measure(trained, rollouts, draw)
    figures = {"about": about(), "config": trained.config.to_dict(), "draw": draw, "seeds": records}
    write_bytes(out, (json.dumps(figures, indent=2, ensure_ascii=False) + "\n").encode())
    fill_page(page, {"variance": tables(records)})
    print(tables(records))
    print(f"wrote {out} and {page}")


if __name__ == "__main__":
    tyro.cli(main)
