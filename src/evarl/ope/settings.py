"""Settings of off-policy estimates. Plain data, no JAX."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from evarl.errors import InputError, unknown_name
from evarl.ranges import MOST, flag, real, sizes, whole

Rule = Literal["pooled", "per-start", "neighbours"]
RULES: tuple[Rule, ...] = ("pooled", "per-start", "neighbours")
Convention = Literal["sound", "greedy-huber"]
TraceKind = Literal["retrace", "tree-backup", "q-lambda"]
TRACE_KINDS: tuple[TraceKind, ...] = ("retrace", "tree-backup", "q-lambda")
Horizon = Literal["finite", "endless"]
Cuts = Literal["refuse", "model"]
Behaviour = Literal["logged", "estimate"]
Transitions = Literal["pooled", "per-step"]


@dataclass(frozen=True)
class FQEConfig:
    """Settings of fitted Q evaluation: the network, its optimiser, and the meaning of its backups."""

    hidden_sizes: tuple[int, ...] = (100, 100)
    """Widths of the hidden layers."""
    learning_rate: float = 3e-4
    """Adam's step size; constant for the first half of the steps, then decays linearly to a fiftieth."""
    batch_size: int = 100
    """Transitions in one gradient step."""
    steps: int = 10_000
    """Gradient steps."""
    target_interval: int = 20
    """Gradient steps between two copies into the target network, which make one backup. Values need about
    3 / (1 − discount) backups, or as many as there are time steps."""
    convention: Convention = "sound"
    """sound: back up the policy's expectation with squared loss, and only terminated steps end the value. greedy-huber: as
    d3rlpy on logs that mark terminals only, with the greedy action, Huber loss (squared for continuous actions), and time
    limits that end the value."""
    time_feature: bool | None = None
    """Estimate values over the T steps of the longest trajectory: t / T is a feature, and the value ends at step T. If False,
    values have no horizon, and a time limit or a cut is bootstrapped at the final observation. `ope.estimate` sets it by
    `Settings.horizon`; a fit on its own takes None for False."""
    action_samples: int = 8
    """For continuous actions: draws of the policy at each observation, made once; each pass uses the next one."""
    held_out: float = 0.1
    """Share of the trajectories held out for the Bellman error; with 0 that error is undefined."""
    tolerance: float = 0.05
    """A fit has converged if its mean start value changes, and is expected to change further, by less than this share of
    the standard deviation of the values."""
    trace: float = 0.0
    """λ, the weight of later errors of a trajectory in a target, from 0 (one step) to 1."""
    trace_kind: TraceKind = "retrace"
    """Factor of each later step: λ min(1, ratio) (retrace, which requires the behaviour's log-probabilities), λ times the
    policy's probability (tree-backup, discrete actions), or λ (q-lambda, which diverges if the policies differ much)."""
    trace_steps: int = 8
    """Steps after the first whose errors enter a target, if the trace is above 0."""
    one_hot: bool = True
    """Give single whole numbers of a range below 1024 a one-hot code, since they are names of states and not magnitudes."""

    def validate(self) -> None:
        """Refuse settings that are not allowed."""
        for name in ("batch_size", "steps", "target_interval", "action_samples"):
            whole(flag("fqe", name), getattr(self, name))
        for name in ("learning_rate", "tolerance"):
            real(flag("fqe", name), getattr(self, name), above=0)
        sizes("fqe.hidden-sizes", self.hidden_sizes)
        if self.convention not in ("sound", "greedy-huber"):
            raise InputError(f"fqe.convention: {self.convention!r} is not allowed; must be sound or greedy-huber")
        real("fqe.trace", self.trace, least=0, most=1)
        whole("fqe.trace-steps", self.trace_steps, most=1000)
        if self.trace_kind not in TRACE_KINDS:
            raise unknown_name("fqe.trace-kind", self.trace_kind, TRACE_KINDS)
        if self.trace and self.convention != "sound":
            raise InputError(f"fqe.trace: {self.trace} is not allowed with {self.convention}; must be 0")
        real("fqe.held-out", self.held_out, least=0, most=1)
        if self.held_out == 1:
            raise InputError(f"fqe.held-out: {self.held_out} is not allowed; must be from 0 to below 1")


@dataclass(frozen=True)
class MarginalConfig:
    """Settings of marginalised importance sampling."""

    transitions: Transitions = "pooled"
    """Of mis-tabular over a finite horizon. pooled: one estimate of the transitions from all steps, for worlds that do not
    change with time. per-step: one for each step, from that step alone."""

    def validate(self) -> None:
        """Refuse settings that are not allowed."""
        if self.transitions not in get_args(Transitions):
            raise unknown_name("marginal.transitions", str(self.transitions), get_args(Transitions))


@dataclass(frozen=True)
class DICEConfig:
    """Settings of DualDICE: two networks, whose last layers are solved for exactly."""

    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of both networks. The last is the number of features of each."""
    learning_rate: float = 1e-3
    """Adam's step size, which decays linearly to 0."""
    batch_size: int = 256
    """Transitions in one gradient step."""
    steps: int = 1000
    """Gradient steps, of both networks."""
    ridge: float = 1e-4
    """Penalty on the squared coefficients of the last layers, in units of their mean squared features."""
    action_samples: int = 8
    """For continuous actions: draws of the policy at each observation, made once."""
    tolerance: float = 0.05
    """The estimate has converged if the last quarter of training changes it by less than this share of the standard deviation
    of the logged returns, and the weights keep the flow of states up to this share, or up to half of the sampling error but
    no more than four times this share."""

    def validate(self) -> None:
        """Refuse settings that are not allowed."""
        for name in ("batch_size", "steps", "action_samples"):
            whole(flag("dice", name), getattr(self, name))
        for name in ("learning_rate", "tolerance", "ridge"):
            real(flag("dice", name), getattr(self, name), above=0)
        sizes("dice.hidden-sizes", self.hidden_sizes)


@dataclass(frozen=True)
class Settings:
    """Settings that estimators share."""

    rule: Rule = "pooled"
    """Trajectories from which the value of a state is estimated: all (pooled), those that start there (per-start), or those
    that start near it (neighbours; in a world with one start state, all). Fitted Q evaluation needs no rule."""
    confidence: float = 0.95
    """Confidence level of the two-sided intervals."""
    range: tuple[float, float] | None = None
    """Least and greatest possible contribution of a trajectory, for Hoeffding and Bernstein intervals. It must be known
    beforehand, not taken from the data."""
    horizon: Horizon = "finite"
    """finite: the return of the T steps of the longest logged trajectory. endless: the return without a time limit, which
    importance sampling alone cannot estimate."""
    cuts: Cuts = "refuse"
    """What importance sampling does with trajectories that stop before step T without having ended: refuse the log, or add
    the value of a fitted model where they stop."""
    behaviour: Behaviour = "logged"
    """Log-probabilities of the behaviour policy: those of the log, or those of a policy fitted to the logged actions."""
    folds: int = 2
    """Parts of the trajectories for cross-fitting: the model that corrects, or continues, a trajectory was fitted to the other
    parts."""
    clip: float | None = None
    """Upper limit, at least 0, of the log importance ratio of a step, which makes estimates biased; none when not given."""
    resamples: int = 1000
    """Bootstrap samples."""
    least_sample: float = 30.0
    """Effective sample size below which there is neither a standard error nor an interval, unless it is three quarters of the
    trajectories. From 30 on, with weights of mean 1, t intervals at 95 % covered 92 to 96 % on average over problems with light
    and heavy tails, 76 % in the worst; from 10 to 30, 66 to 93 % on average, depending on the method."""
    warn_below: float = 0.05
    """Effective sample size, as a share of the trajectories, below which an estimate carries a warning."""
    fqe: FQEConfig = field(default_factory=FQEConfig)
    """Fitted Q evaluation."""
    fqe_refits: int = 0
    """Fits on resampled trajectories, for standard errors of fitted Q evaluation; 0 for none, or 25 of tabular and linear
    fits, which are fast."""
    ridge: float = 1e-4
    """Ridge of linear fitted Q evaluation, in transitions: what draws each parameter to that of the log's mean reward."""
    switch_threshold: float | None = None
    """Weight above which switch-dr leaves out the correction of a step; by default that of the least estimated error."""
    shrinkage: float | None = None
    """λ of dr-os, which shrinks weights w to λ w / (w² + λ); by default that of the least estimated error."""
    marginal: MarginalConfig = field(default_factory=MarginalConfig)
    """Marginalised importance sampling."""
    dice: DICEConfig = field(default_factory=DICEConfig)
    """DualDICE."""
    random_seed: int = 0
    """Random seed."""

    def validate(self) -> None:
        """Refuse settings that are not allowed."""
        if self.rule not in RULES:
            raise unknown_name("rule", str(self.rule), RULES)
        real("confidence", self.confidence, above=0, most=1)
        if self.confidence == 1:
            raise InputError(f"confidence: {self.confidence} is not allowed; must be below 1, such as 0.95")
        if self.range is not None:
            if not isinstance(self.range, Sequence) or len(self.range) != 2:
                raise InputError(f"range: {self.range!r:.60} is not allowed; must be two numbers, the lower one first")
            for end in self.range:
                real("range", end)
            if not self.range[0] < self.range[1]:
                raise InputError(f"range: {self.range} is not allowed; must have the lower end first")
        for name, allowed in (("horizon", Horizon), ("cuts", Cuts), ("behaviour", Behaviour)):
            if getattr(self, name) not in get_args(allowed):
                raise unknown_name(name, str(getattr(self, name)), get_args(allowed))
        if self.fqe.time_feature not in (None, self.horizon == "finite"):
            raise InputError(
                f"fqe.time-feature: {self.fqe.time_feature} is not allowed with horizon {self.horizon}; leave it out"
            )
        whole("folds", self.folds, least=2, most=100)
        real("least-sample", self.least_sample, least=2)
        if self.clip is not None:
            real("clip", self.clip, least=0)
        whole("resamples", self.resamples, least=2)
        real("warn-below", self.warn_below, least=0, most=1)
        whole("fqe-refits", self.fqe_refits, least=0)
        if self.fqe_refits == 1:
            raise InputError(f"fqe-refits: {self.fqe_refits} is not allowed; must be 0, or at least 2")
        real("ridge", self.ridge, above=0)
        for name in ("switch_threshold", "shrinkage"):
            if getattr(self, name) is not None:
                real(name.replace("_", "-"), getattr(self, name), least=0)
        whole("random-seed", self.random_seed, least=-MOST)
        self.fqe.validate()
        self.marginal.validate()
        if self.horizon == "endless" and self.marginal.transitions == "per-step":
            raise InputError("marginal.transitions: per-step is not allowed with an endless horizon; must be pooled")
        self.dice.validate()

    def fitting(self, convention: Convention | None = None) -> FQEConfig:
        """Settings of fitted Q evaluation for this horizon, by the convention of the settings unless given."""
        config = replace(self.fqe, time_feature=self.horizon == "finite")
        return config if convention is None else replace(config, convention=convention)
