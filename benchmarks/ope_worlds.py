"""Finite worlds for off-policy evaluation: logs from transition tables, exact values and exact variances of estimators.

Everything is NumPy in float64. A step from s with action a has K possible outcomes k with probability p(k|s, a), reward r, next
state s′ and a flag that ends the trajectory, as in the tables `env.unwrapped.P` of Gymnasium.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evarl import ope

Outcome = tuple[float, int, float, bool]
"""Probability, next state, reward, and whether the trajectory ends."""


@dataclasses.dataclass(frozen=True, eq=False)
class World:
    """A finite world of T steps with two policies that depend on its state."""

    probability: np.ndarray
    """[S, A, K]."""
    following: np.ndarray
    """[S, A, K] next states."""
    reward: np.ndarray
    """[S, A, K]."""
    end: np.ndarray
    """[S, A, K] flags."""
    start: np.ndarray
    """[S] probabilities."""
    behaviour: np.ndarray
    """[S, A]."""
    target: np.ndarray
    """[S, A]."""
    horizon: int
    discount: float
    noise: float = 0.0
    """Standard deviation of Gaussian noise that is added to every reward."""
    features: np.ndarray | None = None
    """[S, F] observations of the states; one-hot when not given."""
    code: np.ndarray | None = None
    """[F] with state = features · code; 0, 1, 2, … when not given."""

    @property
    def observations(self) -> np.ndarray:
        """[S, F]."""
        return np.eye(len(self.start)) if self.features is None else self.features

    @property
    def ratio(self) -> np.ndarray:
        """[S, A] π_e / π_b."""
        return np.divide(self.target, self.behaviour, out=np.zeros_like(self.target), where=self.behaviour > 0)

    @cached_property
    def values(self) -> tuple[np.ndarray, np.ndarray]:
        """V [T + 1, S] and Q [T, S, A] of the target policy, by backward induction."""
        v, q = np.zeros((self.horizon + 1, len(self.start))), np.zeros((self.horizon, *self.target.shape))
        for t in reversed(range(self.horizon)):
            q[t] = (self.probability * (self.reward + self.discount * self._onward(v[t + 1]))).sum(axis=2)
            v[t] = (self.target * q[t]).sum(axis=1)
        return v, q

    @property
    def value(self) -> float:
        """J of the target policy over T steps."""
        return float(self.start @ self.values[0][0])

    @cached_property
    def of_most_probable_actions(self) -> "World":
        """The same world with the target policy's most probable action in place of the policy."""
        return dataclasses.replace(self, target=np.eye(self.target.shape[1])[self.target.argmax(axis=1)])

    @cached_property
    def endless_value(self) -> float:
        """J of the target policy without a time limit."""
        moves = np.zeros((len(self.start), len(self.start)))
        flow = self.target[..., None] * self.probability
        rows = np.broadcast_to(np.arange(len(self.start))[:, None, None], self.following.shape)
        np.add.at(moves, (rows, self.following), np.where(self.end, 0.0, flow))
        v = np.linalg.solve(np.eye(len(moves)) - self.discount * moves, (flow * self.reward).sum(axis=(1, 2)))
        return float(self.start @ v)

    def sample(self, count: int, seed: int | Sequence[int]) -> ope.LoggedData:
        """Independent trajectories of the behaviour policy, cut by a time limit after T steps."""
        rng = np.random.default_rng(seed)
        shape = (count, self.horizon)
        state, action, mask = np.zeros(shape, int), np.zeros(shape, int), np.zeros(shape, bool)
        reward, terminated = np.zeros(shape), np.zeros(shape, bool)
        now, alive = _choose(rng, np.broadcast_to(self.start, (count, len(self.start)))), np.ones(count, bool)
        for t in range(self.horizon):
            a = _choose(rng, self.behaviour[now])
            k = _choose(rng, self.probability[now, a])
            state[:, t], action[:, t], mask[:, t] = now, a, alive
            reward[:, t] = self.reward[now, a, k] + self.noise * rng.normal(size=count)
            terminated[:, t] = self.end[now, a, k] & alive
            now = np.where(alive, self.following[now, a, k], now)
            alive = alive & ~terminated[:, t]
        truncated = np.zeros(shape, bool)
        truncated[:, -1] = alive
        seen = self.observations
        return ope.LoggedData.from_arrays(
            observation=seen[state],
            action=np.where(mask, action, 0),
            reward=np.where(mask, reward, 0.0),
            log_prob=np.where(mask, np.log(self.behaviour[state, action]), 0.0),
            terminated=terminated,
            truncated=truncated,
            mask=mask,
            final_observation=seen[now],
        )

    @cached_property
    def policy(self) -> ope.TargetPolicy:
        """The target policy as functions of observations; made once, so that these are compiled once."""
        code = jnp.asarray(np.arange(len(self.start)) if self.code is None else self.code, jnp.float32)
        table = jnp.asarray(self.target, jnp.float32)
        with np.errstate(divide="ignore"):
            logs = jnp.asarray(np.log(self.target), jnp.float32)

        def state(observation: jax.Array) -> jax.Array:
            return jnp.round(jnp.asarray(observation, jnp.float32) @ code).astype(int)

        return ope.TargetPolicy(
            log_prob=lambda observation, action: logs[state(observation), action],
            probabilities=lambda observation: table[state(observation)],
            sample=lambda key, observation: jax.random.categorical(key, logs[state(observation)]),
            mode=lambda observation: jnp.argmax(table[state(observation)], axis=1),
        )

    def log(self, count: int, seed: int | Sequence[int]) -> ope.Log:
        """A sampled log with the discount of this world."""
        return ope.Log(self.sample(count, seed), self.discount)

    @cached_property
    def variances(self) -> dict[str, float]:
        """Limits of n·Var by method, n times the variance of the estimate from n trajectories.

        Exact for every n for `tis` and `pdis`, and for `dr` with the true Q function, which is the least variance of any
        unbiased estimator (Jiang & Li 2016); asymptotic for the self-normalised `wis` and `wpdis`. `weight` is E[w²], of
        which n / E[w²] is the effective sample size.
        """
        square, with_return, with_square = self._whole()
        start, value = self.start, self.value
        tis, one, two = start @ with_square, start @ with_return, start @ square
        v, q = self.values
        powers = self.discount ** np.arange(self.horizon)
        temporal = lambda t: powers[t] * (self.reward + self.discount * self._onward(v[t + 1]) - q[t][..., None])  # noqa: E731
        return {
            "tis": float(tis - value**2),
            "wis": float(tis - 2 * value * one + value**2 * two),
            "pdis": float(start @ self._second_moment(lambda t: powers[t] * self.reward) - value**2),
            "wpdis": float(start @ self._second_moment(self._influence())),
            "dr": float(start @ (v[0] ** 2 + self._second_moment(temporal)) - value**2),
            "weight": float(two),
        }

    def _onward(self, of_state: np.ndarray) -> np.ndarray:
        """[S, A, K]: an array [S] at the next state, 0 where the trajectory ends."""
        return np.where(self.end, 0.0, of_state[self.following])

    def _weighted(self, of_outcome: np.ndarray) -> np.ndarray:
        """[S]: Σ_a π_b ρ² Σ_k p · x."""
        return (self.target * self.ratio * (self.probability * of_outcome).sum(axis=2)).sum(axis=1)

    def _second_moment(self, reward: Callable[[int], np.ndarray]) -> np.ndarray:
        """[S]: E[(Σ_t w_t c_t)²] of rewards c_t [S, A, K] that may depend on time, with the noise of the logged rewards."""
        first, second = np.zeros(len(self.start)), np.zeros(len(self.start))
        for t in reversed(range(self.horizon)):
            c, to_come = reward(t), self._onward(first)
            noise = (self.noise * self.discount**t) ** 2
            second = self._weighted(c**2 + noise + 2 * c * to_come + self._onward(second))
            first = (self.target * (self.probability * (c + to_come)).sum(axis=2)).sum(axis=1)
        return second

    @property
    def squared_weight(self) -> np.ndarray:
        """[S]: E[w²] of the weight of a whole trajectory, by start state."""
        square = np.ones(len(self.start))
        for _ in range(self.horizon):
            square = self._weighted(np.where(self.end, 1.0, square[self.following]))
        return square

    def _whole(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """E[w²], E[w² G] and E[w² G²] by start state, with the weight w of the whole trajectory."""
        square, one, two = np.ones(len(self.start)), np.zeros(len(self.start)), np.zeros(len(self.start))
        for _ in range(self.horizon):
            after = np.where(self.end, 1.0, square[self.following])
            first, second = self.discount * self._onward(one), self.discount**2 * self._onward(two)
            r = self.reward
            two = self._weighted((r**2 + self.noise**2) * after + 2 * r * first + second)
            one = self._weighted(r * after + first)
            square = self._weighted(after)
        return square, one, two

    def _influence(self) -> Callable[[int], np.ndarray]:
        """Pseudo-rewards c_t of WPDIS, whose influence function is Σ_t w_t c_t.

        With S_t the probability that a trajectory of the target policy is alive at t, R_t the mean reward there, s_t = S_t /
        S_{t−1} and U_t = Σ_{k≥t} γ^k S_k R_k:  c_t = γ^t (r_t − R_t) + (1[alive at t + 1] − s_{t+1}) U_{t+1} / S_{t+1}.
        """
        alive, reward = np.zeros(self.horizon + 1), np.zeros(self.horizon)
        now = self.start
        for t in range(self.horizon):
            alive[t] = now.sum()
            flow = now[:, None, None] * self.target[..., None] * self.probability
            reward[t] = (flow * self.reward).sum() / alive[t] if alive[t] > 0 else 0.0
            now = np.bincount(self.following.ravel(), np.where(self.end, 0.0, flow).ravel(), len(self.start))
        powers = self.discount ** np.arange(self.horizon)
        to_come = np.append(np.cumsum((powers * alive[:-1] * reward)[::-1])[::-1], 0.0)

        def pseudo(t: int) -> np.ndarray:
            centred = powers[t] * (self.reward - reward[t])
            if t + 1 == self.horizon or alive[t + 1] <= 0:
                return centred
            return centred + (~self.end - alive[t + 1] / alive[t]) * to_come[t + 1] / alive[t + 1]

        return pseudo


def from_dense(transition: np.ndarray, reward: np.ndarray, ends: np.ndarray, **others: Any) -> World:
    """A world from P(s′|s, a) and r(s, a, s′), [S, A, S], in which some states [S] end the trajectory when entered."""
    following = np.broadcast_to(np.arange(len(ends)), transition.shape)
    return World(transition, following, reward, np.broadcast_to(ends, transition.shape), **others)


def from_table(table: Mapping[int, Mapping[int, Sequence[Outcome]]], **others: Any) -> World:
    """A world from a table of Gymnasium, {state: {action: [(probability, next state, reward, end), …]}}."""
    most = max(len(outcomes) for actions in table.values() for outcomes in actions.values())
    arrays = np.zeros((4, len(table), len(table[0]), most))
    for s, actions in table.items():
        for a, outcomes in actions.items():
            arrays[:, s, a, : len(outcomes)] = np.array(outcomes, float).T
    return World(arrays[0], arrays[1].astype(int), arrays[2], arrays[3].astype(bool), **others)


def greedy(world: World, discount: float = 0.99, sweeps: int = 1000) -> np.ndarray:
    """[S] optimal actions without a time limit, by value iteration; the first one of those that are equally good."""
    v = np.zeros(len(world.start))
    for _ in range(sweeps):
        q = (world.probability * (world.reward + discount * world._onward(v))).sum(axis=2)
        v = q.max(axis=1)
    return (q > v[:, None] - 1e-9).argmax(axis=1)


def epsilon_greedy(best: np.ndarray, actions: int, epsilon: float) -> np.ndarray:
    """[S, A]: the best action, or with probability ε a uniform one."""
    return epsilon / actions + (1 - epsilon) * np.eye(actions)[best]


def _choose(rng: np.random.Generator, probability: np.ndarray) -> np.ndarray:
    """One index for each row of probabilities."""
    below = rng.random((len(probability), 1)) * probability.sum(axis=1, keepdims=True) >= probability.cumsum(axis=1)
    return np.minimum(below.sum(axis=1), probability.shape[1] - 1)
