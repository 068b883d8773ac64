"""Evaluators, which predict the values of a policy from its behaviour in an assessment."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
