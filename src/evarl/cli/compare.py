"""`evarl compare RUN1 RUN2 …`: certify several policies with a family-wise error of at most α."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from evarl.cli.certify import Effort, record, terms
from evarl.cli.outside import ImportOptions, given_policy
from evarl.cli.parsing import OpensRuns, parse
from evarl.cli.tables import PlainTable, print_table
from evarl.errors import InputError, plain_text

UNTESTED = "an earlier candidate failed"
"""Why candidates are not tested; there is no other reason."""


@dataclass(frozen=True)
class Compare(OpensRuns, ImportOptions):
    """Test J ≥ threshold for the policies of some runs, in the order of their predictions, until the first fails.

    All seeds of the runs are candidates. The family-wise error, that any of them is certified and does not reach the threshold,
    is at most alpha. Predictions are clipped to the possible returns, and those that are far outside of them come last.

    A policy of another package, given by --policy-sb3 or --policy-import, is a candidate as well: the last RUN is
    then the directory for its certificates, which is made if need be, and the first evaluator of the runs predicts its value.

    Exit code 0: at least one is certified; 1: none; 2: invalid input.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN …]")]
    """Directories of finished runs with evaluators, of one task; the last may be that of a policy of another package."""
    test: Annotated[Effort, tyro.conf.arg(name="")] = Effort()


def run(arguments: list[str]) -> int:
    """Parse the arguments, test the candidates and print them."""
    command = parse(Compare, arguments, "evarl compare", Compare(tyro.MISSING))
    if not command.runs:
        raise InputError("runs: are missing; must be directories of finished runs")

    from evarl.certificates.compare import compare_policies, earlier_tests  # imports JAX

    def notify(line: str) -> None:
        print(plain_text(line), file=sys.stderr)

    effort = command.test
    found = compare_policies(_runs(command), terms(effort), again=effort.again, sign_with=effort.sign, notify=notify)
    earlier = earlier_tests(found)
    error = min(1.0, effort.alpha + sum(one.error for one in earlier))
    if command.test.json:
        rows = [
            {"run": one.run, "seed": one.seed, "outside": one.outside, "predicted": one.predicted}
            | ({"outcome": "not tested", "reason": UNTESTED} if one.issued is None else record(one.issued))
            for one in found
        ]
        said = {"threshold": effort.threshold, "alpha": effort.alpha, "family_wise_error": error}
        print(json.dumps(said | {"earlier_tests": len(earlier), "candidates": rows}))
    else:
        table = PlainTable("candidate", "predicted J", "outcome", "J is at least", "rollouts", "certificate", box=None)
        for one in found:
            cells = [f"not tested: {UNTESTED}", "—", "—", "—"]
            if one.issued is not None:
                conclusion = one.issued.certificate.conclusion
                bound = "—" if conclusion.bound is None else f"{conclusion.bound:.4g}"
                cells = [one.issued.outcome, bound, str(conclusion.rollouts), str(one.issued.path)]
            name = f"{one.run} ({one.outside})" if one.outside else f"{one.run} seed {one.seed}"
            table.add_row(name, f"{one.predicted:.4g}", *cells)
        print_table(table)
        certified = sum(one.certified for one in found)
        counted = f" (with {len(earlier)} earlier tests)" if earlier else ""
        print(
            f"\n{certified} of {len(found)} certified to reach {effort.threshold:g}; "
            f"family-wise error at most {error:g}{counted}"
        )
    return 0 if any(one.certified for one in found) else 1


def _runs(command: Compare) -> list[Any]:
    """The runs, the last of them as that of the policy of another package if one is named."""
    if command.policy_sb3 is None and command.policy_import is None:
        given_policy(command)  # refuses options of a policy that is not named
        return list(command.runs)
    if len(command.runs) < 2:
        raise InputError(
            f"runs: '{command.runs[0]}' is the directory of the policy; must be one or more runs before it, to compare it with"
        )
    from evarl.evaluation.outside import outside_configuration, outside_directory  # imports JAX
    from evarl.runs.outside import SEED, is_outside
    from evarl.runs.run import Run

    *paths, directory = command.runs
    runs = [Run.load(path) for path in paths]
    if (Path(directory) / "config.json").exists() and not is_outside(Run.load(directory), SEED):
        raise InputError(f"runs: '{directory}' was trained here; the last must be a directory for the policy given")
    task = runs[0].config.world, runs[0].config.horizon, runs[0].config.discount
    outside_configuration(directory, *task)  # refuses the directory before the policy is loaded, which can be slow
    return [*runs, outside_directory(directory, given_policy(command), *task)]
