"""d3rlpy's side of `make bench-ope`; runs in an environment of its own, with nothing of evarl.

For each line on standard input, as many gradient steps; the seconds they took, and the estimate after them, go to standard
output as JSON. The target policy is a look-up table, the cheapest there is.
"""

import contextlib
import io
import json
import logging
import os
import sys
import time

import numpy as np
import structlog
import torch

with contextlib.redirect_stderr(io.StringIO()):  # gym tells everybody to leave it
    import d3rlpy


class Greedy:
    """What fitted Q evaluation asks of an algorithm: the best action, here of states that are shown as one-hot vectors."""

    def __init__(self, best: np.ndarray):
        self._best = torch.as_tensor(best)
        self.impl = self

    def predict_best_action(self, observation: torch.Tensor) -> torch.Tensor:
        """[B] action numbers."""
        return self._best[observation.argmax(dim=1)]


def main(log: str, threads: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # d3rlpy prints where the answers go
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - d3rlpy draws its batches from it
    with np.load(log) as arrays:
        observation, action, reward, ends, best, settings = (
            arrays[name] for name in ("observation", "action", "reward", "ends", "best", "settings")
        )
    discount, learning_rate, batch_size, interval = settings.tolist()
    dataset = d3rlpy.dataset.MDPDataset(
        observations=observation.reshape(-1, observation.shape[-1]),
        actions=action.reshape(-1),
        rewards=reward.reshape(-1),
        terminals=ends.reshape(-1),
        action_space=d3rlpy.ActionSpace.DISCRETE,
    )
    config = d3rlpy.ope.FQEConfig(
        learning_rate=learning_rate,
        batch_size=int(batch_size),
        gamma=discount,
        target_update_interval=int(interval),
        encoder_factory=d3rlpy.models.VectorEncoderFactory([100, 100]),
    )
    fqe = d3rlpy.ope.DiscreteFQE(algo=Greedy(best), config=config)
    starts = observation[:, 0]
    versions = {"d3rlpy": d3rlpy.__version__, "torch": torch.__version__}
    print(json.dumps(versions), file=answers)
    for line in sys.stdin:
        steps = int(line)
        began = time.perf_counter()
        quiet = {"show_progress": False, "logger_adapter": d3rlpy.logging.NoopAdapterFactory()}
        fqe.fit(dataset, n_steps=steps, n_steps_per_epoch=steps, **quiet)
        seconds = time.perf_counter() - began
        estimate = float(fqe.predict_value(starts, best[starts.argmax(axis=1)]).mean())
        print(json.dumps({"seconds": seconds, "estimate": estimate}), file=answers)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
