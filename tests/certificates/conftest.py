"""Pages of certificates that are issued, forged and verified show the same figures many times: each is drawn once."""

import importlib

import pytest

page = importlib.import_module("evarl.certificates.page")
DRAWN: dict[str, bytes] = {}


@pytest.fixture(scope="module", autouse=True)
def figures_are_drawn_once():
    """That they are the same when they are drawn again is tested in `tests/report/test_figures.py`."""
    draw = page._figure

    def drawn(picture):
        known = repr((picture.values.tolist(), picture.label, picture.lines, picture.range))
        if known not in DRAWN:
            DRAWN[known] = draw(picture)
        return DRAWN[known]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "_figure", drawn)
        yield
