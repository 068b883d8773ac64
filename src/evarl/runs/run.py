"""Runs that were trained, read from their directories."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from evarl.agents.actor_critic import PolicyState
from evarl.agents.distributions import world_action
from evarl.assessment.assessment import Assessment
from evarl.errors import FileError, InputError, plain_text, unknown_name
from evarl.evaluators.evaluator import LearntEvaluator
from evarl.learning.configuration import TrainConfig
from evarl.learning.learner import Learner, make_learner
from evarl.ope.dataset import LoggedData
from evarl.ope.policy import TargetPolicy, of_agent
from evarl.ranges import MOST, whole
from evarl.runs.acting import Acting, Source
from evarl.runs.assessments import ASSESSMENT, load_evaluator, save_evaluator, saved_assessment
from evarl.runs.checks import check_finite, check_own, not_fitted
from evarl.runs.directory import CALIBRATED, RunDirectory, open_run
from evarl.runs.export import export_policy
from evarl.runs.log import read_log
from evarl.runs.log_plan import FOLDERS, Part, plan_log
from evarl.runs.metrics import MetricsTable
from evarl.settings import conforming
from evarl.storage.tensors import as_tree, load_arrays
from evarl.worlds.contexts import spread_contexts
from evarl.worlds.spaces import Box
from evarl.worlds.world import AnyWorld, Key

CONTEXTS = 64
"""Contexts over which a critic that sees them is averaged."""


def load(
    path: str | Path,
    *,
    allow_modules: Sequence[str] = (),
    env: Callable[..., Any] | None = None,
    assessment: Assessment | None = None,
) -> "Run":
    """Open the run in a directory: its configuration, metrics, policies and evaluators. Nothing in it is executed.

    A run whose world comes from a module of its own requires this module to be loaded, or to be in `allow_modules`. One that
    was trained with a function that cannot be imported, `train(env=make_env)` in a script, needs it again as `env`, and one
    whose `assessment` has mappings between two worlds needs that again.
    """
    return Run.load(path, allow_modules=allow_modules, env=env, assessment=assessment)


class Run:
    """A run directory: the configuration, metrics, policies and evaluators of a run.

    >>> import evarl, tempfile
    >>> run = evarl.train("navigation", updates=2, environments=2, steps=8, out=tempfile.mkdtemp(), quiet=True)
    >>> run.metrics.num_rows
    2
    """

    def __init__(self, directory: RunDirectory | str | Path, assessment: Assessment | None = None):
        if not isinstance(directory, RunDirectory | str | Path):
            raise InputError(
                f"run: {directory!r:.60} is not allowed; must be a directory, as in evarl.load('runs/first')"
            )
        self._directory = directory if isinstance(directory, RunDirectory) else open_run(Path(directory))
        self._given = assessment
        self._policies: dict[int, PolicyState] = {}
        self._on_device: dict[int, PolicyState] = {}
        self.reseed(0)

    def __repr__(self) -> str:
        config, kept = self.config, self._directory
        kind = config.agent.algorithm + (f" with β = {config.beta:g}" if config.beta else "")
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"seeds {self.seeds[0]} to {self.seeds[-1]}"
        told = f"{plain_text(config.world)}, {kind}, {seeds}, {config.updates} updates"
        if not kept.finished():
            return f"<Run {plain_text(str(self.path))}: {told}, not finished>"
        try:
            mean, error = (kept.read_summary().get(name) for name in ("return", "return_standard_error"))
        except FileError:
            return f"<Run {plain_text(str(self.path))}: {told}, damaged summary>"
        over = "" if error is None else f" ± {error:.2g}"
        return (
            f"<Run {plain_text(str(self.path))}: {told}, return {'unknown' if mean is None else f'{mean:.4g}{over}'}>"
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        allow_modules: Sequence[str] = (),
        env: Callable[..., Any] | None = None,
        assessment: Assessment | None = None,
    ) -> "Run":
        """Open the run in a directory; the same as `evarl.load`."""
        if not isinstance(path, str | Path):
            raise InputError(f"run: {path!r:.60} is not allowed; must be a directory, as in evarl.load('runs/first')")
        return cls(open_run(Path(path), allow_modules=allow_modules, env=env), assessment)

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._directory.path

    @property
    def config(self) -> TrainConfig:
        """The full configuration."""
        return self._directory.config

    @property
    def seeds(self) -> list[int]:
        """Every seed of the run."""
        return [seed for group in self._directory.groups for seed in group]

    @property
    def metrics(self) -> pa.Table:
        """One row per update and seed; `.to_pandas()` makes a data frame of it."""
        return MetricsTable.read(self._directory.metrics).table()

    @property
    def summary(self) -> dict[str, Any]:
        """Returns over the last tenth of the run, its time and memory, and warnings."""
        return self._directory.read_summary()

    @functools.cached_property
    def learner(self) -> Learner:
        """The world, the agent, the assessment and the evaluator, built again from the configuration and files."""
        return make_learner(self.config, self.assessment)

    @functools.cached_property
    def assessment(self) -> Assessment | None:
        """The assessment of an evaluation-aware run; None in ordinary training."""
        if self.config.evaluator_mode in ("none", None):
            return None
        return saved_assessment(self.path / ASSESSMENT, (self.config.world, self.config.assessment.world), self._given)

    def evaluator_state(self, seed: int | None = None, file: str | Path | None = None) -> LearntEvaluator:
        """The evaluator of a seed, by default the first, fitted or not (see `not_fitted`).

        With a `file`, another evaluator for the same assessment, such as one made by `evarl pretrain`.
        """
        if self.assessment is None:
            raise InputError(f"{self.path}: has no evaluator; train with --beta, or with --evaluator-mode colearned")
        if file is not None:
            return load_evaluator(Path(file), self.config, self.assessment, setting="evaluator")
        path = self._directory.file("evaluator", self._seed(seed))
        if not path.exists():
            raise FileError(
                f"{self.path}: seed {self._seed(seed)} has no evaluator yet; finish the run with --resume (in Python resume=True)"
            )
        return load_evaluator(path, self.config, self.assessment, self._seed(seed))

    def calibrated_evaluator(self, seed: int) -> LearntEvaluator | None:
        """What `keep_calibrated` wrote for a seed; None if there is nothing, or nothing that can be used."""
        path = self._directory.file(CALIBRATED, seed)
        assert self.assessment is not None
        try:
            return load_evaluator(path, self.config, self.assessment, seed) if path.exists() else None
        except (FileError, InputError):
            return None

    def keep_calibrated(self, seed: int, learnt: LearntEvaluator) -> None:
        """Write the evaluator of a seed together with what it knows of perturbed policies; not where that is not allowed."""
        path = self._directory.file(CALIBRATED, seed)
        with contextlib.suppress(OSError, FileError):
            path.parent.mkdir(exist_ok=True)
            save_evaluator(path, learnt, self.config, seed)

    def fitted_evaluator(self, seed: int | None = None) -> LearntEvaluator:
        """The evaluator of a seed, by default the first; InputError if it was not fitted."""
        learnt = self.evaluator_state(seed)
        reason = not_fitted(learnt, self.config, self._seed(seed))
        if reason is not None:
            raise InputError(f"{self.path}: {reason}")
        return learnt

    @property
    def world(self) -> AnyWorld:
        """The world in which the policy was trained."""
        return self.learner.world

    def policy_state(self, seed: int | None = None) -> PolicyState:
        """The parameters of the final policy of a seed, by default the first."""
        seed = self._seed(seed)
        path = self._directory.file("policy", seed)
        if not path.exists():
            raise FileError(
                f"{self.path}: seed {seed} has no final policy yet; finish the run with --resume (in Python resume=True)"
            )
        if seed not in self._policies:
            self._policies[seed] = self._read_policy(path, seed)
        return self._policies[seed]

    def policy(self, observation: Array, key: Key, seed: int | None = None) -> Array:
        """Draw the action of the final policy for one observation or a batch of them, in the world's units."""
        action, _ = self._act(self.policy_state(seed), key, observation)
        return world_action(self.learner.agent.action_space, action)

    def predict(
        self,
        observation: ArrayLike,
        deterministic: bool = True,
        *,
        seed: int | None = None,
        random_seed: int | None = None,
    ) -> np.ndarray:
        """Actions of a seed's final policy (the first's), in the environment's own space, for use in a loop of your own.

        Args:
            observation: one observation as the environment gives it, or a batch with one more axis in front.
            deterministic: the likeliest action; else one drawn from the policy.
            seed: the training seed whose policy acts.
            random_seed: draws the same actions for the same observations; without it, draws go on from `reseed`.

        Programs are compiled for powers of two of observations, so batches of other sizes compile nothing new.
        """
        conforming("deterministic", deterministic, bool)
        source = None if deterministic else self._source(random_seed)
        seed = self._seed(seed)
        if seed not in self._on_device:
            self._on_device[seed] = jax.device_put(self.policy_state(seed))
        return self._acting(self._on_device[seed], observation, source)

    def reseed(self, random_seed: int) -> None:
        """Begin the random numbers of `predict` anew."""
        whole("random-seed", random_seed, least=-MOST)
        self._key, self._draws = np.asarray(jax.random.PRNGKey(random_seed)), 0

    def export(self, path: str | Path, *, seed: int | None = None, deterministic: bool = True) -> Path:
        """Write a seed's final policy as a program in StableHLO, which acts like `predict` and needs no evarl.

        It takes batches of any size and is read by `jax.export.deserialize`; one that is not deterministic takes a key as well.
        """
        conforming("path", path, str | Path)
        conforming("deterministic", deterministic, bool)
        return export_policy(Path(path), self._acting, self.policy_state(seed), deterministic)

    def value(
        self, observation: Array, seed: int | None = None, context: ArrayLike | None = None
    ) -> Float[Array, "*batch"]:
        """The critic's value of observations, in units of reward.

        A critic that sees the hidden context is asked in a given one, [P] or [*batch, P]; without one, its values are
        averaged over contexts that are spread like those of training, always the same.
        """
        given = None if context is None else jnp.asarray(context, jnp.float32)
        return self._value(self.policy_state(seed), observation, given)

    @property
    def critic_sees_context(self) -> bool:
        """Whether the critic was given the hidden context in training."""
        return bool(self.world.contexts) and self.config.critic_sees_context

    def critic(self, policy: PolicyState, observation: Array, context: Array | None = None) -> Float[Array, "*batch"]:
        """The critic's value as in `value`, for a policy's parameters; to be traced."""
        agent = self.learner.agent
        if not self.critic_sees_context:
            return agent.value(policy, observation)
        if context is not None:
            return agent.value(policy, observation, context)
        every = jnp.asarray(spread_contexts(self.world.contexts, CONTEXTS))
        return jax.vmap(lambda one: agent.value(policy, observation, one))(every).mean(axis=0)

    @property
    def log_parts(self) -> tuple[Part, ...]:
        """The parts of the log: recent (the last updates), all (a sample of the whole training), both, or none."""
        return self._directory.log_parts

    def logged_data(self, seed: int | None = None, updates: int | None = None, part: Part | None = None) -> LoggedData:
        """Deployment trajectories of a seed; requires training with `log_megabytes`.

        Of the whole training (`part="all"`) where these were logged, or of the last updates ("recent"): all that were logged, or
        so many `updates` of them.
        """
        seed, part = self._seed(seed), self.log_part(part, updates)
        group = next(group for group in self._directory.groups if seed in group)
        folder = self._directory.folder(FOLDERS[part], group)
        plan = None
        if part == "all":
            plan = plan_log(part, self.learner, self._directory.log_megabytes, self._directory.planned)
        data = read_log(folder, group.index(seed), updates, plan)
        shown, taken = self.world.observation_space.shape, self.learner.agent.action_space
        action = (taken.size,) if isinstance(taken, Box) else ()
        if (data.observation.shape[2:], data.action.shape[2:]) != (shown, action):
            raise FileError(f"{folder}: is not a log of {self.config.world}")
        return data

    def log_part(self, part: Part | None = None, updates: int | None = None) -> Part:
        """The part of the log that is asked for, if there is one: unless it is said, all, or recent for a number of updates."""
        if not self.log_parts:
            raise InputError(f"{self.path}: has no log of trajectories; train with --log-megabytes")
        if part is not None and part not in get_args(Part):
            raise unknown_name("part", str(part), get_args(Part))
        if part is not None and part not in self.log_parts:
            raise InputError(f"{self.path}: has no log of this part, {part}; train with --log-from {part} or both")
        if updates is not None:
            whole("updates", updates)
            if part == "all" or "recent" not in self.log_parts:
                raise InputError(f"updates: {updates} is not allowed for a log of the whole training; must be left out")
        return part or ("recent" if updates is not None or "all" not in self.log_parts else "all")

    def target_policy(self, seed: int | None = None) -> TargetPolicy:
        """The final policy of a seed, for off-policy evaluation."""
        return of_agent(self.learner.agent, self.policy_state(seed))

    def _seed(self, seed: int | None) -> int:
        if seed is not None and (isinstance(seed, bool) or seed not in self.seeds):
            raise InputError(f"seed: {seed} is not one of this run's seeds {self.seeds[0]} to {self.seeds[-1]}")
        return self.seeds[0] if seed is None else seed

    def _source(self, random_seed: int | None) -> Source:
        """Random numbers that no draw had before, or always the same for a given random seed."""
        if random_seed is not None:
            whole("random-seed", random_seed, least=-MOST)
            return jax.random.PRNGKey(random_seed), np.int32(0)
        self._draws = (self._draws + 1) % MOST
        return self._key, np.int32(self._draws)

    @functools.cached_property
    def _acting(self) -> Acting:
        return Acting(self.learner.agent, self.world)

    @functools.cached_property
    def _act(self) -> Any:
        return jax.jit(self.learner.agent.act)

    @functools.cached_property
    def _value(self) -> Any:
        return jax.jit(self.critic)

    @functools.cached_property
    def policy_shapes(self) -> Any:
        """Shapes and dtypes of the parameters of a policy of this run."""
        environments, agent = self.config.environments, self.learner.agent  # the learner must not be made while tracing
        return jax.eval_shape(lambda key: agent.init(key, environments).policy, jax.random.PRNGKey(0))

    def _read_policy(self, path: Path, seed: int) -> PolicyState:
        shapes = self.policy_shapes
        arrays, about = load_arrays(path)
        check_own(path, about, "policy", self.config, seed)
        policy = as_tree(path, arrays, shapes)
        check_finite(path, policy)
        return policy
