"""The studies, one module each, and the registry of their names. No JAX.

A module has a title (`TITLE`), what the paper claims (`PAPER`) or, for a study that is not in the paper, what it measures
(`METHOD`), the jobs that it needs (`jobs`), and its tables, figures and checked claims (`results`).
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from evarl.errors import unknown_name
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import StudyResults
from evarl.studies.scales import StudyScale

PAPER_STUDIES = {
    "tradeoff": "a frozen evaluator and a co-learned one, β ∈ {0, 0.01, 0.1}, in three MinAtar games",
    "ope-on-eva": "the co-learned evaluator and off-policy evaluation, on the same EvA-RL policies of the games",
    "pipelines": "ordinary training + off-policy evaluation, and EvA-RL + its evaluator, in the games",
    "continuous": "the same as pipelines, in three Brax robots",
    "mismatch": "assessed in an open field, deployed among obstacles: 2-D navigation",
    "tabular": "evaluation error and return against β in random tabular MDPs, and the bound in closed form",
    "curves": "learning curves of return and evaluation error, games and robots",
    "scenarios": "pictures of the start states of the games' assessments",
}
"""Name and summary of each result of the paper."""

OWN_STUDIES = {
    "choices": "start states, the end of the warm-up and β: set by hand, or decided in training",
    "families": "families of worlds with a hidden context: passive, and trained to be evaluable",
    "gradients": "gradient × β on navigation, with passive, co-learned and frozen evaluators",
    "held-out": "errors of evaluators on policies of seeds that they were not fitted to",
    "targets": "the critic's values or the evaluator's own where batches cut episodes, in three Brax robots",
}
"""Name and summary of the studies that are not in the paper."""

STUDIES = PAPER_STUDIES | OWN_STUDIES


@dataclass(frozen=True)
class Study:
    """A study: what it runs and what it reports."""

    name: str
    title: str
    paper: str
    """What the paper claims; empty for a study that is not in the paper."""
    method: str
    """What is run and measured, where the paper does not say it."""
    jobs: Callable[[StudyScale], list[Job]]
    results: Callable[[StudyScale, Store], StudyResults]


def study(name: str) -> Study:
    """The study with a name of the registry."""
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    module = importlib.import_module(f"evarl.studies.catalogue.{name.replace('-', '_')}")
    paper, method = getattr(module, "PAPER", ""), getattr(module, "METHOD", "")
    return Study(name, module.TITLE, paper, method, module.jobs, module.results)
