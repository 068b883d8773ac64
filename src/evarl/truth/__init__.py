"""True values of policies: by Monte Carlo with standard errors, and exactly in finite worlds."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
