"""Plain data as a dataclass, for what is in this folder."""

from evarl.storage.plain import as_declared as as_dataclass

__all__ = ["as_dataclass"]
