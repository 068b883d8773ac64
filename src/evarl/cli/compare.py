"""`evarl compare RUN1 RUN2 …`: certify several policies with a family-wise error of at most α."""

import json
import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from evarl.cli.certify import Effort, record, terms
from evarl.cli.parsing import OpensRuns, parse
from evarl.cli.tables import PlainTable, print_table
from evarl.errors import InputError, plain_text


@dataclass(frozen=True)
class Compare(OpensRuns):
    """Test J ≥ threshold for the policies of some runs, in the order of their predictions, until the first fails.

    All seeds of the runs are candidates. The family-wise error, that any of them is certified and does not reach the threshold,
    is at most alpha. Exit code 0: at least one is certified; 1: none; 2: invalid input.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN …]")]
    """Directories of finished runs with evaluators, of one task."""
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
    found = compare_policies(command.runs, terms(effort), again=effort.again, sign_with=effort.sign, notify=notify)
    earlier = earlier_tests(found)
    error = min(1.0, effort.alpha + sum(one.error for one in earlier))
    if command.test.json:
        rows = [
            {"run": one.run, "seed": one.seed, "predicted": one.predicted}
            | ({"outcome": "not tested"} if one.issued is None else record(one.issued))
            for one in found
        ]
        said = {"threshold": effort.threshold, "alpha": effort.alpha, "family_wise_error": error}
        print(json.dumps(said | {"earlier_tests": len(earlier), "candidates": rows}))
    else:
        table = PlainTable("candidate", "predicted J", "outcome", "J is at least", "rollouts", "certificate", box=None)
        for one in found:
            cells = ["not tested", "—", "—", "—"]
            if one.issued is not None:
                conclusion = one.issued.certificate.conclusion
                bound = "—" if conclusion.bound is None else f"{conclusion.bound:.4g}"
                cells = [one.issued.outcome, bound, str(conclusion.rollouts), str(one.issued.path)]
            table.add_row(f"{one.run} seed {one.seed}", f"{one.predicted:.4g}", *cells)
        print_table(table)
        certified = sum(one.certified for one in found)
        counted = f" (with {len(earlier)} earlier tests)" if earlier else ""
        print(
            f"\n{certified} of {len(found)} certified to reach {effort.threshold:g}; "
            f"family-wise error at most {error:g}{counted}"
        )
    return 0 if any(one.certified for one in found) else 1
