"""Presentation of results: figures, pictures of start states, JSON records and HTML pages; nothing is measured here."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evarl.report.drawing import COLOURS, rendered
    from evarl.report.figures import evaluation_picture
    from evarl.report.records import assessment_record, evaluation_record
    from evarl.report.templates import data_address, render

_HOMES = {
    "COLOURS": "drawing",
    "assessment_record": "records",
    "data_address": "templates",
    "evaluation_picture": "figures",
    "evaluation_record": "records",
    "render": "templates",
    "rendered": "drawing",
}
"""Public names and their modules: Matplotlib and JAX are imported when one that needs them is first used."""

__all__ = [
    "COLOURS",
    "assessment_record",
    "data_address",
    "evaluation_picture",
    "evaluation_record",
    "render",
    "rendered",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evarl.report' has no attribute '{name}'")
    return getattr(importlib.import_module(f"evarl.report.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
