"""Policies of other packages: Stable-Baselines3, PyTorch, and functions of NumPy."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
