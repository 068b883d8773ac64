"""Studies: the paper's results and ours as jobs, with tables, figures and verdicts on claims.

`catalogue` lists the studies; `schedule` runs their jobs on workers (`local`, `ray_workers`) and a `Store` keeps the results;
`study_report` makes a report of them, which `write_report` writes. Only the tasks of workers import JAX.

>>> from evarl import studies
>>> studies.study("tabular").title
'Performance and evaluability in random tabular worlds'
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evarl.studies.assemble import study_report
    from evarl.studies.catalogue import OWN_STUDIES, PAPER_STUDIES, Study, study
    from evarl.studies.jobs import Job, Store
    from evarl.studies.reports import StudyReport
    from evarl.studies.scales import SCALES, StudyScale
    from evarl.studies.schedule import run_jobs
    from evarl.studies.write import write_report

_HOMES = {
    "OWN_STUDIES": "catalogue",
    "PAPER_STUDIES": "catalogue",
    "SCALES": "scales",
    "Job": "jobs",
    "Store": "jobs",
    "Study": "catalogue",
    "StudyReport": "reports",
    "StudyScale": "scales",
    "run_jobs": "schedule",
    "study": "catalogue",
    "study_report": "assemble",
    "write_report": "write",
}
"""Public names and their modules, which are imported when a name is first used."""

__all__ = [
    "OWN_STUDIES",
    "PAPER_STUDIES",
    "SCALES",
    "Job",
    "Store",
    "Study",
    "StudyReport",
    "StudyScale",
    "run_jobs",
    "study",
    "study_report",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evarl.studies' has no attribute '{name}'")
    return getattr(importlib.import_module(f"evarl.studies.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
