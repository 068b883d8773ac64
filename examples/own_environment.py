"""Train a policy in an environment of your own, and ask what it would do: `python examples/own_environment.py`.

The same on the command line, in this directory: `evarl train gymnasium/own_environment:Target --beta 0.05`.
"""

import gymnasium
import jax
import numpy as np

import evarl


class Target(gymnasium.Env):
    """Move a point on a line to a target; the nearer, the better."""

    observation_space = gymnasium.spaces.Box(-2, 2, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, length: int = 20) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Draw place and target."""
        super().reset(seed=seed)
        self.steps, self.state = 0, self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.state.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Move the point by a tenth of the action."""
        self.steps += 1
        self.state[0] = np.clip(self.state[0] + 0.1 * action[0], -2, 2)
        return self.state.copy(), -float(abs(self.state[0] - self.state[1])), False, self.steps >= self.length, {}


def main() -> None:
    """Train for some seconds, and print what came out."""
    run = evarl.train(env=Target, env_kwargs={"length": 20}, updates=60, out="runs/own-environment")
    print("return", round(run.summary["return"], 2))
    print("action left of the target:", run.policy(np.array([-1.0, 0.5], np.float32), jax.random.PRNGKey(0)))


if __name__ == "__main__":
    main()
