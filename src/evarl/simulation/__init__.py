"""How experience is gathered: one Simulator with a compiled and a host engine."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
