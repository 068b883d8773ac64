"""Where policies act: the interfaces of worlds, and worlds by name. To add one of your own, see `register_world`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
