"""Training with everything kept in a run directory: configuration, checkpoints, metrics, logs, policies.

The function `train` of this folder is `evarl.train`; `pretrain` is in `evarl.runs.pretrain`.

>>> from evarl import runs
>>> runs.Run.__name__
'Run'
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
