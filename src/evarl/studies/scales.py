"""Scales of studies: how much of each family of worlds is run. Plain data."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

ScaleName = Literal["smoke", "laptop", "full", "paper"]

METHODS: tuple[str, ...] = ("fqe", "fqe-greedy-huber", "tis", "pdis", "dr", "wpdis", "wdr")
"""The paper's four, fitted Q evaluation in both conventions, and the self-normalised forms that are less noisy."""

COMPILE_QUICKLY = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
)
"""XLA flags that halve the compilation time and make the code slower, for programs that run a few times only."""


@dataclass(frozen=True)
class Family:
    """Worlds that share their settings, and how they are run at one scale."""

    preset: str
    worlds: tuple[str, ...]
    seeds: int
    group: int
    """Seeds in one job."""
    betas: tuple[float, ...]
    """Evaluability coefficients above 0."""
    frozen: bool
    """Whether there are conditions with a frozen evaluator."""
    states: int
    """States of each kind whose true values are estimated."""
    rollouts: int
    """Rollouts from each of these states."""
    log_megabytes: float
    """Size of the log of the last updates, for off-policy evaluation, per seed."""
    fqe_steps: int
    weight: float
    """Approximate cost of one seed, relative to other families."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the preset."""
    per_world: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Further settings of single worlds."""
    pretraining: tuple[int, int, int] = (100, 512, 5000)
    """Policies, transitions of each and gradient steps for the frozen evaluator."""
    methods: tuple[str, ...] = METHODS
    """Off-policy methods."""
    own: int | None = None
    """Seeds that the scale has by itself, if it is asked for more: their jobs stay those of `group` seeds, and stay valid."""
    piece: int | None = None
    """Seeds in one job beyond these; as many as in `group` if None."""
    variant: str = ""
    """What tells it from another family of the same worlds, such as the algorithm; part of the names of jobs and of tables."""


def spans(family: Family) -> list[tuple[int, int]]:
    """First seed and number of seeds of each job of a condition.

    >>> spans(replace(LAPTOP.minatar, seeds=10, own=3))
    [(0, 3), (3, 5), (8, 2)]
    """
    own, piece = family.seeds, family.piece or family.group
    if family.own is not None and family.piece is not None:
        own = min(family.own, family.seeds)
    found = [(first, min(family.group, own - first)) for first in range(0, own, family.group)]
    return found + [(first, min(piece, family.seeds - first)) for first in range(own, family.seeds, piece)]


EVERYTHING = "returns+rewards+trajectory+fingerprint"
"""All kinds of behaviour at once."""


@dataclass(frozen=True)
class HeldOut:
    """Evaluators fitted to policies of some seeds and tested on those of the others."""

    preset: str
    world: str
    updates: int
    replicates: int
    """Rollouts of each scenario of the assessment."""
    seeds: int = 9
    folds: int = 3
    """Groups of seeds; each is held out once, while the evaluators are fitted to the others."""
    policies: int = 60
    """Policies of each seed, at equal distances in training."""
    episodes: int = 64
    """Whole episodes of each policy."""
    states: int = 512
    """Visited states kept of each policy."""
    steps: int = 4000
    """Gradient steps of each evaluator."""
    behaviours: tuple[str, ...] = (
        "returns",
        "rewards",
        "trajectory",
        "fingerprint",
        "returns+fingerprint",
        EVERYTHING,
    )
    """Kinds of Ξ that evaluators are given."""
    networks: tuple[str, ...] = ()
    """Further kinds of evaluators, which are given the first kind of Ξ."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings of training and assessment that differ from the preset."""
    fitting: dict[str, Any] = field(default_factory=dict)
    """Settings of evaluators that differ from the preset."""


@dataclass(frozen=True)
class StudyScale:
    """The families of worlds at one scale."""

    name: ScaleName
    about: str
    minatar: Family
    brax: Family
    navigation: Family
    gradients: Family
    """Navigation for the study of gradients; some of its conditions get three times as many seeds."""
    held_out: tuple[HeldOut, ...]
    """Worlds of the study of held-out policies."""
    trials: int
    """Random tabular MDPs."""
    families: dict[str, Family]
    """Families of worlds with a hidden context, by name; `states` is the number of sites."""
    minatar_own: Family | None = None
    """The games once more, with an evaluator whose own values follow where batches cut episodes; not at every scale."""
    brax_ppo: Family | None = None
    """The robots once more, with PPO where the paper has A2C; not at every scale."""


GAMES = ("gymnax/Asterix-MinAtar", "gymnax/Freeway-MinAtar", "gymnax/SpaceInvaders-MinAtar")
ROBOTS = ("brax/halfcheetah", "brax/reacher", "brax/ant")
WITHOUT_TIS: tuple[str, ...] = tuple(method for method in METHODS if method != "tis")
"""The paper leaves TIS out where episodes have 1 000 steps."""

FOUR_EDGES = "21 22 28 29"
"""Start states of tests in crossing: its `TEST_STATES`."""
AT_REST = "0.5,0,0,0 -0.5,0,0,0 0.7,0,0,0 -0.7,0,0,0"
"""Start states of tests of Brax's pendulum: upright and at rest, away from the middle, where no deployment goes."""
SMALL: dict[str, Any] = {"environments": 32, "rollouts_per_start": 2}


def _families(seeds: int, updates: tuple[int, int, int, int, int]) -> dict[str, Family]:
    """Families of worlds with a hidden context, by name, with so many updates of each.

    Where a range has to be told, tests of `crossing` are four times as long: what 24 tries of the bridge can tell is not enough
    even for the best evaluator.
    """
    two, many, cart, pendulum, host = updates
    decade, few = (0.1, 0.3, 1.0), (0.1, 1.0)
    changes: dict[str, tuple[str, str, tuple[float, ...], int, int, dict[str, Any]]] = {
        "crossing, two values": ("crossing", "crossing", decade, 256, 2, {"updates": two}),
        "crossing, a range": (
            "crossing",
            "crossing",
            few,
            256,
            2,
            {"updates": many, "context": ["bridge=0.08:0.95"], "assessment.start_states": " ".join([FOUR_EDGES] * 4)},
        ),
        "CartPole, hidden force": ("cartpole", "gymnax/CartPole-v1", few, 128, 256, {"updates": cart}),
        "Brax pendulum, failing motor": (
            "cartpole",
            "brax/inverted_pendulum",
            few,
            128,
            32,
            SMALL
            | {"updates": pendulum, "horizon": 120, "steps": 120, "context": ["weak-actuator=0:0.012"]}
            | {"assessment.start_states": AT_REST, "assessment.horizon": 75, "assessment.entropy_coefficient": 0.1}
            | {"agent.normalise_observations": True},
        ),
        "Gymnasium CartPole, hidden load": (
            "cartpole",
            "gymnasium/CartPole-v1",
            few,
            64,
            48,
            SMALL
            | {"updates": host, "horizon": 100, "steps": 100, "context": ["masscart=2:5", "force_mag=3", "gravity=20"]},
        ),
    }
    return {
        name: Family(preset, (world,), seeds, 10, betas, False, sites, rollouts, 0, 0, 20, settings, methods=())
        for name, (preset, world, betas, sites, rollouts, settings) in changes.items()
    }


PAPER = StudyScale(
    name="paper",
    about="the paper's protocol: 10M steps and 20 seeds of MinAtar, 20M and 20 of Brax, 30 seeds of navigation",
    minatar=Family("minatar", GAMES, 20, 5, (0.01, 0.1), True, 64, 64, 250, 50_000, 100),
    brax=Family("brax", ROBOTS, 20, 2, (5e-4, 5e-3), True, 32, 16, 400, 50_000, 1000, methods=WITHOUT_TIS),
    navigation=Family("navigation", ("navigation",), 30, 15, (0.05,), False, 64, 256, 2, 10_000, 3),
    gradients=Family("navigation", ("navigation",), 10, 10, (0.005, 0.05, 0.5), True, 64, 256, 0, 0, 1, methods=()),
    held_out=(
        HeldOut("navigation", "navigation", 1000, 8, networks=("listing", "pairs", "linear")),
        HeldOut("minatar", "gymnax/Asterix-MinAtar", 400, 8, steps=2000),
        HeldOut("minatar", "gymnax/SpaceInvaders-MinAtar", 400, 8, steps=2000),
    ),
    trials=1000,
    families=_families(seeds=20, updates=(2500, 2500, 500, 500, 300)),
)

SHORT_BRAX: dict[str, Any] = {"updates": 25, "environments": 256, "steps": 80, "assessment.base_updates": 10}
SHORT_BRAX |= {"evaluator.warmup": 5, "evaluator.learning_rate": 1e-3}
LAPTOP = replace(
    PAPER,
    name="laptop",
    about="2M steps and 3 seeds of MinAtar; 0.5M steps (Reacher: 2M) and 3 seeds of Brax, from 256 environments × 80 steps, "
    "so that episodes of 1 000 steps come to their end; 10 seeds of navigation",
    minatar=Family("minatar", GAMES, 3, 3, (0.01, 0.1), True, 64, 64, 90, 20_000, 20, {"updates": 313}, piece=5),
    brax=replace(
        Family("brax", ROBOTS, 3, 3, (5e-4,), False, 16, 8, 90, 20_000, 200, SHORT_BRAX, methods=WITHOUT_TIS),
        per_world={"brax/reacher": {"updates": 98, "assessment.base_updates": 30}},
    ),
    navigation=replace(PAPER.navigation, seeds=10, group=10),
    families=_families(seeds=10, updates=(800, 1000, 300, 300, 200)),
)

FULL_BRAX: dict[str, Any] = SHORT_BRAX | {"updates": 244, "assessment.base_updates": 75, "evaluator.warmup": 49}
"""5M steps; base policies see the share of Reacher's at `laptop`, and the warm-up is a fifth of training as there."""
OWN_VALUES_TO_THE_END: dict[str, Any] = {"evaluator.bootstrap": "evaluator"}
"""The evaluator's own values follow at cuts. A value is a return up to the time limit, as in the games."""
OWN_VALUES: dict[str, Any] = OWN_VALUES_TO_THE_END | {"evaluator.truncation": "bootstrap"}
"""They follow at the time limit too, as for robots."""
FITTING: dict[str, Any] = {"evaluator.policies": 25, "evaluator.batch_size": 1000, "evaluator.final_steps": 3000}
"""A memory and a final fit that suit own values, as in the preset `brax` and in the study `targets`."""
FULL = replace(
    LAPTOP,
    name="full",
    about="10M steps and 10 seeds of MinAtar, 5M steps and 5 seeds of Brax with 256 × 80 steps, 30 seeds of navigation; "
    "families as at laptop",
    minatar=Family("minatar", GAMES, 10, 5, (0.01, 0.1), True, 64, 64, 90, 10_000, 100),
    brax=Family("brax", ROBOTS, 5, 5, (5e-4, 5e-3), True, 16, 8, 90, 10_000, 1000, FULL_BRAX, methods=WITHOUT_TIS),
    navigation=PAPER.navigation,
)
PPO_BRAX: dict[str, Any] = FULL_BRAX | OWN_VALUES | FITTING | {"agent.algorithm": "ppo"}
"""PPO, with 128 gradient steps for each of A2C's, and the evaluator that is more accurate on robots."""
FULL = replace(
    FULL,
    minatar_own=replace(FULL.minatar, betas=(0.01,), frozen=False, changes=OWN_VALUES_TO_THE_END, variant="own values"),
    brax_ppo=replace(FULL.brax, betas=(5e-4,), frozen=False, changes=PPO_BRAX, variant="PPO"),
)

FEW: tuple[str, ...] = ("fqe", "fqe-greedy-huber", "pdis", "dr")
"""Off-policy methods at the scale `smoke`."""
TINY = {
    "updates": 5,
    "environments": 8,
    "steps": 20,
    "horizon": 10,  # too short for most episodes to end earlier, so that logs have one shape and share compiled programs
    "evaluator.warmup": 1,
    "evaluator.batch_size": 16,
    "evaluator.network.layers": 1,
    "assessment.base_updates": 2,
    "agent.hidden_sizes": [8],
}
FIT = (4, 32, 20)
"""Policies, transitions and gradient steps for the frozen evaluator at the scale `smoke`."""
SMOKE = StudyScale(
    name="smoke",
    about="one game, one robot, two seeds, five updates: shows that everything runs; its numbers and verdicts mean nothing",
    minatar=Family("minatar", GAMES[2:], 2, 2, (0.01,), True, 4, 2, 5, 100, 1, TINY, pretraining=FIT, methods=FEW),
    brax=Family("brax", ("brax/inverted_pendulum",), 2, 2, (5e-4,), False, 4, 2, 5, 100, 1, TINY, methods=FEW),
    navigation=Family("navigation", ("navigation",), 2, 2, (0.05,), False, 4, 8, 1, 100, 1, TINY, methods=FEW),
    gradients=Family(
        "navigation", ("navigation",), 2, 6, (0.05,), True, 4, 8, 0, 0, 1, TINY, pretraining=FIT, methods=()
    ),
    held_out=(
        HeldOut(
            "navigation",
            "navigation",
            updates=5,
            replicates=2,
            seeds=3,
            policies=3,
            episodes=4,
            states=16,
            steps=20,
            behaviours=("returns", EVERYTHING),
            networks=("linear",),
            changes=TINY,
        ),
    ),
    trials=20,
    families={
        "crossing, two values": replace(
            PAPER.families["crossing, two values"],
            seeds=2,
            group=2,
            betas=(1.0,),
            states=4,
            weight=1,
            changes={"updates": 5, "ramp": 1, "environments": 8, "contexts": 2, "rollouts_per_start": 2}
            | {"evaluator.warmup": 1, "evaluator.batch_size": 16, "evaluator.initial_steps": 5}
            | {"evaluator.final_steps": 5, "agent.hidden_sizes": [8]},
        )
    },
)

SCALES: dict[ScaleName, StudyScale] = {scale.name: scale for scale in (SMOKE, LAPTOP, FULL, PAPER)}


def with_seeds(scale: StudyScale, seeds: int | None, piece: int | None = None) -> StudyScale:
    """The scale with another number of seeds for each condition, those beyond its own in jobs of `piece` seeds."""
    if seeds is None:
        return scale

    def changed(family: Family) -> Family:
        return replace(family, seeds=seeds, own=family.seeds, piece=piece or family.piece)

    families: dict[str, Any] = {name: changed(one) for name, one in vars(scale).items() if isinstance(one, Family)}
    families["families"] = {name: changed(family) for name, family in scale.families.items()}
    return replace(scale, **families)
