"""The pages of implementation details name settings, constants and functions of the code, with the values that these have."""

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import evarl

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "details").glob("*.md"))
SPAN = re.compile(r"`([^`\n]+)`")
STATED = re.compile(r"([\w.]+) = (\S.*)")
DOTTED = re.compile(r"evarl(\.\w+)+")


def found(name: str) -> Any:
    """What a dotted name stands for."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(name)


def setting(name: str) -> Any:
    value: Any = evarl.TrainConfig()
    for part in name.split("."):
        value = getattr(value, part)
    return value


def wrong(text: str) -> list[str]:
    """Code of a page that names nothing, or states a value that is another."""
    odd = []
    for span in SPAN.findall(text):
        stated = STATED.fullmatch(span)
        name = stated.group(1) if stated else span
        try:
            if stated is None:
                if DOTTED.fullmatch(span):
                    found(span)
                continue
            value = found(name) if name.startswith("evarl.") else setting(name)
            if value != ast.literal_eval(stated.group(2)):
                odd.append(f"{span}, which is {value!r}")
        except (AttributeError, ImportError) as error:
            odd.append(f"{span}: {error}")
    return odd


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_and_values_are_those_of_the_code(page):
    text = page.read_text()
    assert len(re.findall(r"^\d+\. ", text, re.M)) > 10
    assert not wrong(text)


def test_a_wrong_value_is_noticed():
    text = "`max_shift = 3.0` `evarl.agents.losses.nothing` `agent.gae = 1` `evarl.learning.control.SLOWEST = 0.05` `--beta 1`"
    assert [one.split(",")[0].split(":")[0] for one in wrong(text)] == [
        "max_shift = 3.0",
        "evarl.agents.losses.nothing",
        "agent.gae = 1",
    ]
