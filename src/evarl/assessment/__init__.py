"""Assessments: start states of a world and a short horizon, in which policies show their behaviour."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
