"""`evarl assess RUN`: the assessment of a policy, and the value predicted from it."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from evarl.cli.outside import OPTIONS, OutsideOptions, only_one, sb3_policy
from evarl.cli.parsing import PrintsResults, RunPath, options, parse
from evarl.cli.tables import PlainTable, notify, number, print_table
from evarl.errors import plain_text

if TYPE_CHECKING:
    import numpy as np

    from evarl.evaluation.assess import AssessmentResult

OUTSIDE = "outside what this evaluator knows"
BESIDE = 4
"""Pictures of start states in one row."""
MOST_RANGES = 6
"""Numbers of a behaviour whose ranges are printed."""


@dataclass(frozen=True)
class Assess(PrintsResults, OutsideOptions):
    """Roll a policy through a run's assessment once, and predict its deployment value with the run's evaluator.

    The value has an interval, and behaviour that the evaluator knows nothing about is reported first. For both, perturbed
    versions of the final policy are tried when a run's evaluator is asked for the first time.
    """

    run: RunPath
    """Directory of a finished run with an evaluator."""
    seed: int | None = None
    """Seed of the policy and the evaluator; by default the first."""
    policy: str | None = None
    """File of another policy with the same networks: policy/seed-N.safetensors of a run, or one of its checkpoints."""
    policy_seed: int = 0
    """Index of the seed in a checkpoint, counted from 0."""
    policy_import: str | None = None
    """Another policy as module:name: a function of JAX, (key, observations) → (actions, log-probabilities or None); a function of
    NumPy, observations → actions or probabilities; or what evarl.policies made of a model."""
    evaluator: str | None = None
    """File of another evaluator for the same assessment, made by `evarl pretrain` or evaluator/seed-N.safetensors of a run."""
    states: str = ""
    """Predict at these states as well: "0.1,0.1 0.5,0.9" (worlds whose state is a list of numbers)."""
    samples: int = 64
    """Number of start states drawn from μ_D."""
    replicates: int | None = None
    """Rollouts of each scenario; by default as in the run's configuration."""
    random_seed: int = 0
    """Random seed."""
    context: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Hidden number of the site on which the policy is assessed, once for each that varies; by default drawn as in training."""
    truth_episodes: int | None = None
    """Episodes by which the true value on this site is measured where it is not exact; by default 256, or 32 in worlds on the
    host; 0: none. In a single world, episodes that measure the value of a policy from elsewhere; by default none."""
    interval: bool = True
    """Whether to try perturbed policies for an interval and a warning; --no-interval is quicker the first time."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, assess, and print."""
    command = parse(Assess, arguments, "evarl assess", Assess(tyro.MISSING))

    from evarl.evaluation.assess import assess  # imports JAX
    from evarl.report.records import assessment_record

    settings = options(command, *OPTIONS)
    only_one({"policy": command.policy, "policy-import": command.policy_import, "policy-sb3": command.policy_sb3})
    if (outside := sb3_policy(command)) is not None:
        settings["policy"] = outside
    found = assess(**settings)
    if not command.json:
        _print(found)
    elif found.not_fitted is not None:
        notify(f"warning: {found.not_fitted}")
    elif found.judgement.outside is not None:
        notify(f"warning: {OUTSIDE}: {found.judgement.outside}")
    for told in [] if found.not_fitted else _extrapolations(found):
        notify(f"warning: {told}, the range in training; the prediction is an extrapolation")
    for told in [] if found.not_fitted else found.outside_contexts:
        notify(f"warning: {told}; the prediction is an extrapolation")
    if command.json:
        print(json.dumps(assessment_record(found)))


def _extrapolations(found: "AssessmentResult") -> list[str]:
    """What is outside of its range in training: returns, or how many numbers of a richer behaviour in each scenario."""
    beyond, count = found.outside_training, found.behaviour.shape[1]
    if count == 1:
        told = [f"{x.returned:.3f}, outside of {x.lowest:.3f} to {x.highest:.3f}" for x in beyond]
        return [f"scenario {x.scenario} returned {text}" for x, text in zip(beyond, told, strict=True)]
    scenarios = Counter(x.scenario for x in beyond)
    return [f"scenario {i} has {n} of the {count} numbers of its behaviour outside of" for i, n in scenarios.items()]


def _print(found: "AssessmentResult") -> None:
    from evarl.report.pictures import is_board, numbers

    if found.judgement.outside is not None and found.not_fitted is None:
        print(f"{OUTSIDE}: {found.judgement.outside}\n")
    by = "" if found.evaluator is None else f", evaluator {found.evaluator}"
    print(plain_text(f"{found.policy}, assessed in {found.run} (seed {found.seed}, {found.world}{by})"), end="\n\n")
    if found.context is not None:
        site = ", ".join(f"{name}={value:g}" for name, value in found.context.items())
        print(f"site: {site} ({'drawn' if found.context_drawn else 'given'}; hidden from policy and evaluator)\n")
    boards = is_board(found.observations[0])
    if boards:
        _print_boards(found)
    table = PlainTable("scenario", *([] if boards else ["start state"]), "return", "range in training")
    errors = [None] * len(found.returns) if found.standard_errors is None else found.standard_errors
    for i, (mean, error) in enumerate(zip(found.mean_returns, errors, strict=True)):
        start = [] if boards else [numbers(found.observations[i])]
        table.add_row(str(i + 1), *start, number(mean, error=error), _ranges(found.lowest[i], found.highest[i]))
    print_table(table)
    _print_predictions(found)
    if found.truth is not None:
        value, error, episodes = found.truth
        source = "exact, by dynamic programming" if error is None else f"{episodes} episodes"
        where = "" if found.context is None else " on this site"
        print(f"true value{where} {number(value, error=error)} ({source})")


def _ranges(lowest: "np.ndarray", highest: "np.ndarray") -> str:
    """The range of every number of a behaviour; of many, how many there are."""
    if len(lowest) > MOST_RANGES:
        return f"{len(lowest)} numbers"
    return ", ".join(f"{low:.3f} to {high:.3f}" for low, high in zip(lowest, highest, strict=True))


def _print_predictions(found: "AssessmentResult") -> None:
    if found.not_fitted is not None:
        print(f"\npredicted deployment value: not fitted ({found.not_fitted})")
        return
    deviation = found.standard_deviation
    spread = "" if deviation is None else f", standard deviation {deviation:.3f} over them"
    starts = f"{found.distinct} distinct of {found.drawn} drawn from μ_D"
    print(f"\npredicted deployment value {found.mean:.3f} (start states: {starts}{spread})")
    interval = found.judgement.interval
    allowed = "" if interval is None else ", for which the interval allows"
    once = "one rollout" if found.returns.shape[1] == 1 else f"{found.returns.shape[1]} rollouts"
    print(
        f"from one draw of the test (random seed {found.random_seed}, {once} of each scenario): another --random-seed may "
        f"predict another value{allowed}"
    )
    if interval is None:
        print(f"no interval: {found.judgement.no_interval}")
    else:
        print(
            f"{interval.share:.0%} interval {interval.low:.3f} to {interval.high:.3f} (at confidence "
            f"{interval.confidence:.0%}, by {interval.policies} held-out policies)"
        )
    for state, value in zip(found.states, found.predicted_at_states, strict=True):
        print(f"predicted value at {', '.join(f'{x:g}' for x in state)}: {value:.3f}")


def _print_boards(found: "AssessmentResult") -> None:
    from evarl.report.pictures import pictures

    drawn, legend = pictures(found.observations, found.world)
    for first in range(0, len(drawn), BESIDE):
        row = drawn[first : first + BESIDE]
        blocks = [[f"scenario {first + i + 1}", *lines] for i, lines in enumerate(row)]
        width = max(len(line) for block in blocks for line in block)
        for lines in zip(*blocks, strict=True):
            print("   ".join(line.ljust(width) for line in lines).rstrip())
        print()
    print(f"{legend}\n")
