"""Which programs are raced in which world, and with whom. No JAX."""

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from benchmarks.race import ROOT, Task
from benchmarks.specs import EXACT, KINDS, Kind, Spec, aware, over_contexts
from evarl.learning.configuration import TrainConfig

ALONE, ROLLOUTS = "environment only", "rollouts, no policy"
A2C, PPO, PPO_ONCE, HOST = "A2C", "PPO", "PPO, 1 epoch, 1 minibatch", "A2C, host"
CONTEXTS, AWARE_CONTEXTS = "A2C over contexts", "EvA-RL over contexts"
TRUTH, FQE, IMPORTANCE = "ground truth", "fitted Q evaluation", "importance sampling"
REJAX, BRAX, SB3 = "Rejax PPO", "Brax PPO", "Stable-Baselines3 A2C"
PARTS = ", parts"
"""What follows the name of a program whose parts are timed."""

RIVALS = {REJAX: (A2C, PPO_ONCE), BRAX: (PPO,), SB3: (A2C, HOST)}
"""Each peer, and which of ours do the same work."""

PYTHONS = {REJAX: ".venv-peers", BRAX: ".venv-peers", SB3: ".venv-sb3"}
SCRIPTS = {REJAX: "rejax_ppo.py", BRAX: "brax_ppo.py", SB3: "sb3_a2c.py"}


@dataclass(frozen=True)
class Course:
    """A world with the paper's settings, and how many updates make a repetition of about a second."""

    preset: str
    updates: int
    alone: int
    """Of the environment only, and of rollouts without a policy."""
    slow: int
    """Of what is slow: the evaluators `listing` and `paired`, and worlds on the host."""
    peers: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = KINDS
    """Evaluators by default."""
    ppo: bool = False
    """Whether PPO is timed, with the settings of the preset."""
    changes: dict[str, Any] = field(default_factory=dict)
    host: str | None = None
    """The same world on the host, if there is one."""
    truth: tuple[int, int, int] | None = None
    """States, rollouts and horizon of the ground truth (0: the world's own)."""
    fqe: int = 0
    """Gradient steps of fitted Q evaluation; 0 leaves off-policy evaluation out."""
    context: str | None = None
    """What varies where training over contexts is timed too, with four environments in each."""


MINATAR = Course(
    "minatar", updates=20, alone=40, slow=4, peers=(REJAX,), kinds=("factored", "listing"), truth=(64, 16, 0)
)
REACHER = Course("brax", updates=3, alone=6, slow=1, peers=(BRAX,), kinds=("factored",), ppo=True, truth=(64, 4, 100))
COURSES = {
    "navigation": Course(
        "navigation", updates=100, alone=800, slow=10, truth=(64, 64, 0), fqe=5000, context="slip=0:0.3"
    ),
    "gymnax/Asterix-MinAtar": dataclasses.replace(MINATAR, kinds=KINDS, fqe=2000, context="init_move_interval=3,5,8"),
    "gymnax/Freeway-MinAtar": MINATAR,
    "gymnax/SpaceInvaders-MinAtar": MINATAR,
    "brax/reacher": REACHER,
    "brax/halfcheetah": dataclasses.replace(REACHER, updates=1, alone=1, truth=(64, 4, 25)),
    "gymnax/CartPole-v1": Course(
        "navigation",
        updates=4000,
        alone=20_000,
        slow=100,
        peers=(SB3,),
        kinds=(),
        changes={"environments": 8, "steps": 5, "rollouts_per_start": 1},
        host="gymnasium/CartPole-v1",
    ),
}

TINY = {"environments": 32, "steps": 8}
"""Changes under which everything runs, and no figure means anything."""


def tasks(
    world: str, evaluators: Collection[Kind] | None, parts: Collection[Kind], peers: bool, tiny: bool = False
) -> dict[str, Task]:
    """What is raced in a world, by name; the order is that of a repetition."""
    course = COURSES[world]
    if tiny:
        course = dataclasses.replace(course, updates=1, alone=1, slow=1, changes=TINY, fqe=min(course.fqe, 100))
    kinds = tuple(course.kinds if evaluators is None or not course.kinds else evaluators)
    made: dict[str, Task] = {}

    def add(name: str, program: str, updates: int, changes: dict[str, Any], cold: bool = True, **more: Any) -> None:
        place = {"preset": course.preset, "world": world} | more
        spec = Spec(program=program, updates=updates, changes=course.changes | changes, **place)
        made[name] = Task(spec.command(), updates, cold)

    add(ALONE, "environment only", course.alone, {})
    add(ROLLOUTS, "rollouts", course.alone, {})
    add(A2C, "training", course.updates, {})
    if course.ppo:
        add(PPO, "training", course.updates, {"agent.algorithm": "ppo"})
    for kind in kinds:
        updates = course.slow if kind in ("listing", "pairs") else course.updates
        add(name_of(kind), "training", updates, aware(kind))
        if kind in parts:
            add(name_of(kind) + PARTS, "parts", updates, aware(kind), cold=False)
    if course.context is not None:
        environments = Spec("training", course.preset, world, changes=course.changes).config().environments
        add(CONTEXTS, "training", course.updates, over_contexts(course.context, environments // 4))
        add(AWARE_CONTEXTS, "training", course.updates, over_contexts(course.context, environments // 4) | EXACT)
    if parts and kinds:
        add(A2C + PARTS, "parts", course.updates, {}, cold=False)
    if peers:
        config = Spec("training", course.preset, world, changes=course.changes).config()
        for peer in available(course.peers):
            made[peer] = _peer(peer, world, config, course)
            if peer == REJAX:
                once = {"agent.algorithm": "ppo", "agent.ppo.epochs": 1, "agent.ppo.minibatches": 1}
                add(PPO_ONCE, "training", course.updates, once)
    if course.host is not None:
        add(HOST, "training", course.slow, {}, world=course.host)
    if course.truth is not None:
        states, rollouts, horizon = course.truth
        limit = {"horizon": horizon} if horizon else {}
        add(TRUTH, "ground truth", 1, limit, states=states, rollouts=2 if tiny else rollouts)
    if course.fqe:
        add(FQE, "fqe", course.fqe, {})
        add(IMPORTANCE, "importance sampling", 1, {})
    return made


def name_of(kind: Kind) -> str:
    """Evaluation-aware training, as tables call it."""
    return f"EvA-RL, {kind}"


def available(peers: Collection[str]) -> list[str]:
    """Peers that are installed."""
    return [peer for peer in peers if _python(peer).exists()]


def settings(task: Task) -> dict[str, Any] | None:
    """What one of our workers is asked to run; None for a peer."""
    return json.loads(task.command[-1]) if task.command[-1].startswith("{") else None


def _python(peer: str) -> Any:
    return ROOT / PYTHONS[peer] / "bin" / "python"


def _peer(peer: str, world: str, config: TrainConfig, course: Course) -> Task:
    """A peer with the same numbers as ours."""
    updates = course.slow if peer == SB3 else course.updates
    flags = {"world": world.split("/")[1], "environments": config.environments, "steps": config.steps}
    if peer == REJAX:
        flags |= {"horizon": config.horizon, "epochs": 1, "minibatches": 1, "activation": config.agent.activation}
    elif peer == BRAX:
        flags |= {"horizon": 1000, "epochs": config.agent.ppo.epochs, "minibatches": config.agent.ppo.minibatches}
    else:
        flags |= {"threads": 1}
    script = str(ROOT / "benchmarks" / "peers" / SCRIPTS[peer])
    words = [f"--{name}={value}" for name, value in (flags | {"updates": updates}).items()]
    return Task((str(_python(peer)), script, *words), updates, cold=peer != SB3)
