"""SCOPE-RL's side of `make ope-compare`; runs in an environment of its own, with nothing of evarl.

Arguments: a file with logs as arrays [R, N, T], and the file for the answers, in JSON: by estimator the R values, the lower and
upper ends by interval, and the seconds that values and intervals took.
"""

import contextlib
import io
import json
import sys
import time
import warnings
from importlib.metadata import version

import numpy as np

with contextlib.redirect_stderr(io.StringIO()):  # gym tells everybody to leave it
    from scope_rl.ope import discrete

ESTIMATORS = {
    "tis": discrete.TrajectoryWiseImportanceSampling,
    "pdis": discrete.PerDecisionImportanceSampling,
    "wis": discrete.SelfNormalizedTIS,
    "wpdis": discrete.SelfNormalizedPDIS,
    "dr": discrete.DoublyRobust,
    "wdr": discrete.SelfNormalizedDR,
}
INTERVALS = {"bootstrap": "bootstrap", "t": "ttest", "bernstein": "bernstein", "hoeffding": "hoeffding"}


def main(log: str, out: str) -> None:
    with np.load(log) as arrays:
        action, reward, pscore, probabilities, q = (
            arrays[name] for name in ("action", "reward", "pscore", "probabilities", "q")
        )
        gamma, alpha, resamples = arrays["settings"].tolist()
    answers: dict = {"versions": {"scope-rl": version("scope-rl"), "numpy": np.__version__}}
    for name, make in ESTIMATORS.items():
        values, ends, began = [], {interval: [] for interval in INTERVALS}, time.perf_counter()
        for r in range(len(action)):
            given = {
                "step_per_trajectory": action.shape[2],
                "action": action[r].reshape(-1),
                "reward": reward[r].reshape(-1),
                "pscore": pscore[r].reshape(-1),
                "evaluation_policy_action_dist": probabilities[r].reshape(-1, probabilities.shape[-1]),
                "state_action_value_prediction": q[r].reshape(-1, q.shape[-1]),
                "gamma": gamma,
            }
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                values.append(float(make().estimate_policy_value(**given)))
                for interval, theirs in INTERVALS.items():
                    options = {"ci": theirs, "alpha": alpha, "n_bootstrap_samples": int(resamples), "random_state": r}
                    found = make().estimate_interval(**given, **options)
                    lower, upper = (next(v for k, v in found.items() if f"({end})" in k) for end in ("lower", "upper"))
                    ends[interval].append([float(lower), float(upper)])
        answers[name] = {"values": values, "intervals": ends, "seconds": time.perf_counter() - began}
    with open(out, "w") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
