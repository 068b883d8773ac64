"""Off-policy evaluation of your own logs: the same log as CSV, Parquet, NPZ and a dictionary, and a policy in NumPy.

    python examples/own_logs.py [FOLDER]

A thermostat was run by rule A, which heats with probability 0.7 below 20 degrees and 0.3 above. What would rule B cost, which
heats with 0.9 and 0.1? Only the log of rule A is used; rule B is simulated at the end to see how far the estimates are off.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from evarl import ope

STEPS, EPISODES, DISCOUNT = 12, 500, 0.95


def rule(cold: float, warm: float):
    """A rule as a function of observations [B, 1] that returns probabilities [B, 2]: to rest, and to heat."""

    def probabilities(observation: np.ndarray) -> np.ndarray:
        heat = np.where(observation[:, 0] < 0, cold, warm)
        return np.stack([1 - heat, heat], axis=1)

    return probabilities


def simulate(probabilities, episodes: int, seed: int) -> dict[str, np.ndarray]:
    """Flat arrays in the layout of D4RL; the observation is the temperature minus 20."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list] = {name: [] for name in ("seen", "action", "reward", "log_prob", "following")}
    temperature = rng.normal(0.0, 2.0, episodes)
    for _ in range(STEPS):
        chance = probabilities(temperature[:, None])
        action = (rng.random(episodes) < chance[:, 1]).astype(int)
        following = 0.9 * temperature + np.where(action == 1, 0.8, -0.8) + rng.normal(0.0, 0.3, episodes)
        reward = -np.abs(following) - 0.2 * action
        log_prob = np.log(chance[np.arange(episodes), action])
        for name, column in zip(columns, (temperature, action, reward, log_prob, following), strict=True):
            columns[name].append(column)
        temperature = following
    flat = {name: np.stack(column, axis=1).reshape(-1) for name, column in columns.items()}
    ends = np.tile(np.arange(STEPS) == STEPS - 1, episodes)
    return {
        "observations": flat["seen"][:, None].astype(np.float32),
        "actions": flat["action"],
        "rewards": flat["reward"],
        "terminals": np.zeros_like(ends),
        "timeouts": ends,
        "next_observations": flat["following"][:, None].astype(np.float32),
        "infos/action_log_probs": flat["log_prob"],
    }


def write(flat: dict[str, np.ndarray], folder: Path) -> list[Path]:
    """The log in three kinds of files."""
    steps = np.arange(len(flat["rewards"]))
    table = pa.table(
        {
            "episode": steps // STEPS,
            "step": steps % STEPS,
            "observation_0": flat["observations"][:, 0].astype(float),
            "next_observation_0": flat["next_observations"][:, 0].astype(float),
            "action": flat["actions"],
            "reward": flat["rewards"],
            "truncated": flat["timeouts"].astype(int),
            "log_prob": flat["infos/action_log_probs"],
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    pa.csv.write_csv(table, folder / "log.csv")
    pa.parquet.write_table(table, folder / "log.parquet")
    np.savez(folder / "log.npz", **flat)
    return [folder / f"log.{ending}" for ending in ("csv", "parquet", "npz")]


def main(folder: Path) -> None:
    """Write the log, read it in every format, and evaluate rule B."""
    flat, new = simulate(rule(0.7, 0.3), EPISODES, 0), rule(0.9, 0.1)
    for path in [*write(flat, folder), None]:
        data = ope.LoggedData.from_flat(flat) if path is None else ope.read(path)
        policy = ope.target_policy(new, data)
        found = ope.estimate(ope.Log(data, DISCOUNT), policy, methods=("pdis", "wpdis", "wis"))
        values = ", ".join(f"{name} {one.value:.4f}" for name, one in found.items())
        print(f"{'a dictionary' if path is None else path.name:12} {values}")
    weighted = found["wpdis"].intervals["bootstrap"]
    print(f"95 % interval of wpdis: {weighted.low:.3f} to {weighted.high:.3f}")
    returns = simulate(new, 20_000, 1)["rewards"].reshape(-1, STEPS) @ DISCOUNT ** np.arange(STEPS)
    print(f"simulated:              {returns.mean():.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "own-logs"))
