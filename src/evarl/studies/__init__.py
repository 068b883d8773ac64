"""Studies: the paper's results and ours as jobs, with tables, figures and verdicts on claims.

`catalogue` lists the studies; `schedule` runs their jobs on workers (`local`, `ray_workers`) and a `Store` keeps the results;
`study_report` makes a report of them, which `write_report` writes. Only the tasks of workers import JAX.

>>> from evarl import studies
>>> studies.study("tabular").title
'Performance and evaluability in random tabular worlds'
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
