"""Presentation of results: figures, pictures of start states, JSON records and HTML pages; nothing is measured here."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
