"""Memory, disk space and time that training and pre-training need, checked before anything is allocated or compiled."""

from pathlib import Path

from evarl.assessment.configuration import behaviour_names
from evarl.learning.candidates import CONTEXTS, ROLLOUTS
from evarl.learning.configuration import TrainConfig
from evarl.learning.evaluability import DIVERSE
from evarl.ranges import whole
from evarl.sizes import (
    check_assessment,
    check_disk,
    check_environments,
    check_memory,
    check_time,
    matrix_entries,
    observation_bytes,
)
from evarl.worlds.spaces import Discrete
from evarl.worlds.world import AnyWorld

METRIC_BYTES = 100
"""Least size of one row of the metrics."""
STEP_BYTES = 18
"""Least size of one step of a trajectory without its observation: action, log-probability, reward, flags, label."""


def behaviour_numbers(config: TrainConfig, world: AnyWorld) -> int:
    """Least count of numbers in the behaviour at one start state that come from rollouts; of own kinds nothing is known."""
    space = world.action_space
    actions = space.n if isinstance(space, Discrete) else space.size
    each = {"rewards": 1, "trajectory": world.observation_space.size + actions + 2}
    names = behaviour_names(config.assessment.behaviour)
    return sum(config.assessment.horizon * each[name] if name in each else 1 for name in names)


def check_training(config: TrainConfig, world: AnyWorld) -> None:
    """Raise InputError if one seed does not fit into memory, or if an update takes hours.

    The configuration must have been validated.
    """
    agent, space = config.agent, world.observation_space
    batch = float(config.environments) * config.steps
    name, value = "environments × steps", f"{config.environments} × {config.steps}"
    check_memory(name, value, batch * (observation_bytes(space) + STEP_BYTES), "a batch")
    check_environments(world, config.environments)
    # parameters, two moments and a gradient of both networks, in 32 bits
    weights = matrix_entries(space.size, *agent.hidden_sizes)
    check_memory("agent.hidden-sizes", agent.hidden_sizes, 32 * weights, "training")
    if agent.algorithm == "ppo":
        passes = float(agent.ppo.epochs) * agent.ppo.minibatches
        check_time("agent.ppo.epochs", agent.ppo.epochs, passes, "an update")
    check_time("agent.critic-steps", agent.critic_steps, agent.critic_steps, "an update")
    check_time("horizon", world.horizon, world.horizon, "an episode")
    check_time("steps", config.steps, config.steps, "an update")
    rows = float(config.updates) * config.seeds
    check_memory("updates × seeds", f"{config.updates} × {config.seeds}", rows * METRIC_BYTES, "the table of metrics")
    if config.evaluator_mode != "none":
        _check_evaluation(config, world, batch)


def _check_evaluation(config: TrainConfig, world: AnyWorld, batch: float) -> None:
    """The part of `check_training` that evaluation-aware training adds."""
    wanted, network = config.assessment, config.evaluator.network
    own = config.world == "navigation" and wanted.select is None
    given = wanted.file is not None or wanted.start_states or own
    scenarios = 1 if given else wanted.scenarios
    check_assessment(world, scenarios * config.groups, wanted.horizon, wanted.replicates)
    contributions = 4.0 * wanted.horizon * scenarios * behaviour_numbers(config, world)  # running means
    check_memory("assessment.behaviour", wanted.behaviour, contributions, "what each step contributes to it")
    if not given and wanted.base_run is None and world.can_restart:
        loops = float(wanted.base_updates) * config.steps
        check_time("assessment.base-updates", wanted.base_updates, loops, "training the base policy")
        if wanted.select == "greedy":
            check_memory("assessment.candidates", wanted.candidates, 40.0 * wanted.candidates**2, "their covariance")
            check_assessment(world, wanted.candidates * CONTEXTS, wanted.horizon, max(ROLLOUTS, wanted.replicates))
    value = f"width {network.width}, {network.layers} layers"
    layers = network.layers if network.kind in ("listing", "pairs") else 1
    weights = matrix_entries(world.observation_space.size, network.width) + 4.0 * layers * network.width**2
    check_memory("evaluator.network", value, 16 * weights, "training")
    check_time("evaluator.network.layers", network.layers, layers * 1e4, "compilation")
    if config.evaluator_mode != "frozen":
        _check_fitting(config, world, batch, scenarios)


def _check_fitting(config: TrainConfig, world: AnyWorld, batch: float, scenarios: int) -> None:
    """The memory of policies, and the gradient steps of an evaluator that is fitted to it."""
    evaluator, space = config.evaluator, world.observation_space
    kept = min(batch, evaluator.transitions or batch)
    row = observation_bytes(space) + 4
    if evaluator.bootstrap == "evaluator":
        row += observation_bytes(space) + 8
    shown = 4.0 * config.groups * scenarios * behaviour_numbers(config, world)
    memory = evaluator.policies * (kept * row + shown)
    check_memory("evaluator.policies", evaluator.policies, memory, "the memory of policies")
    if config.assessment.probes == "learnt":
        check_memory("assessment.probes", "learnt", _kept_policies(config, space.size), "the policies in the memory")
    if evaluator.memory == "diverse":
        many = 2.0 * evaluator.reservoir * DIVERSE * (observation_bytes(space) + 4)
        check_memory("evaluator.reservoir", evaluator.reservoir, many, "the reservoirs of policies")
        played = float(evaluator.perturbed) * evaluator.perturbed_environments * world.horizon
        opened = max(evaluator.perturbed_environments, scenarios * config.assessment.replicates) * evaluator.perturbed
        name = "evaluator.perturbed × perturbed-environments"
        value = f"{evaluator.perturbed} × {evaluator.perturbed_environments}"
        needed = played * (observation_bytes(space) + STEP_BYTES) + float(opened) * world.environment_bytes
        check_memory(name, value, needed, "the episodes of perturbed policies")
    rows = max(evaluator.batch_size, evaluator.policies) * 4.0 * (space.size + evaluator.network.width)
    check_memory("evaluator.batch-size", evaluator.batch_size, rows, "a batch of queries")
    for name in ("steps", "initial_steps", "final_steps"):
        steps = getattr(evaluator, name)
        check_time(f"evaluator.{name.replace('_', '-')}", steps, steps, "fitting the evaluator")


def _kept_policies(config: TrainConfig, observation: int) -> float:
    """Bytes of the policies themselves that a memory keeps: the matrices of their actors, in 32 bits."""
    settings = config.evaluator
    slots = settings.policies * config.groups + (2 * settings.reservoir if settings.memory == "diverse" else 0)
    return 4.0 * slots * matrix_entries(observation, *config.agent.hidden_sizes)


def check_log(megabytes: float, config: TrainConfig, world: AnyWorld, out: Path, parts: int = 1) -> None:
    """Raise InputError if the disk has no room for the parts of the log of trajectories, or for the policies of all seeds."""
    space = world.observation_space
    batch = float(config.environments) * config.steps * (observation_bytes(space) + STEP_BYTES)
    log = parts * min(megabytes * 2**20, batch * config.updates * config.seeds)
    check_disk("log-megabytes", megabytes, log, out)
    policies = 8.0 * matrix_entries(space.size, *config.agent.hidden_sizes) * config.seeds
    check_disk("seeds", config.seeds, policies, out)


def check_pretraining(config: TrainConfig, world: AnyWorld, policies: int, transitions: int, steps: int) -> None:
    """Raise InputError if the records of the policies do not fit into memory, or if fitting to them takes hours."""
    for name, value in {"policies": policies, "transitions": transitions, "steps": steps}.items():
        whole(name, value)
    kept = min(float(transitions), float(config.environments) * config.steps)
    rows = min(policies, config.updates) * kept * config.seeds
    needed = rows * (observation_bytes(world.observation_space) + 4)
    if config.assessment.probes == "learnt":
        each = 4.0 * matrix_entries(world.observation_space.size, *config.agent.hidden_sizes)
        needed += min(policies, config.updates) * config.groups * config.seeds * each
    check_memory("policies", policies, needed, "the records of the policies")
    check_time("steps", steps, steps, "fitting the evaluator")
