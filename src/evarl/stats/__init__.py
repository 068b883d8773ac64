"""Statistics of runs and returns: aggregates, confidence intervals, bootstrap, rank correlations and comparisons.

NumPy and SciPy only; JAX is not imported. Finite-sample bounds for certificates are in `evarl.bounds`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
