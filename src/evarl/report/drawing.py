"""Figures rendered to PNG and SVG. Matplotlib is imported when one is drawn."""

import io
from collections.abc import Callable, Sequence
from typing import Any

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""The palette of Okabe and Ito, which people with colour vision deficiency can tell apart."""


def rendered(
    name: str, size: tuple[float, float], draw: Callable[[Any], None], formats: Sequence[str] = ("png", "svg")
) -> list[bytes]:
    """What `draw` draws on an empty figure, in each of the formats; the same data give the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": name, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        files = [io.BytesIO() for _ in formats]
        for file, kind in zip(files, formats, strict=True):
            figure.savefig(file, format=kind, dpi=140, metadata={"Date": None} if kind == "svg" else None)
    return [file.getvalue() for file in files]
