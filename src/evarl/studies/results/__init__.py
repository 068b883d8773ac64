"""The paper's eight results, a module for each.

A module says what it runs (`jobs`), what the paper claims (`PAPER`), and what was found (`said`).
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from evarl.studies.common import Said
from evarl.studies.jobs import Job, Store
from evarl.studies.scales import ResultName, Scale

NAMES: tuple[ResultName, ...] = get_args(ResultName)


@dataclass(frozen=True)
class Result:
    """One result of the paper."""

    name: str
    title: str
    paper: str
    jobs: Callable[[Scale], list[Job]]
    said: Callable[[Scale, Store], Said]


def result(name: str) -> Result:
    """The result called `name` on the command line."""
    module = importlib.import_module(f"evarl.studies.results.{name.replace('-', '_')}")
    return Result(name, module.TITLE, module.PAPER, module.jobs, module.said)
