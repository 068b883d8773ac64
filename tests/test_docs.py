"""What the documents say can be done is done here: every Python block runs, and every `evarl` command of the README."""

import ast
import dataclasses
import doctest
import re
from pathlib import Path

import pytest

import evarl
from evarl.agents.configuration import ALGORITHMS
from evarl.assessment.configuration import BEHAVIOURS
from evarl.cli.main import call
from evarl.cli.parsing import parse
from evarl.cli.train import Train
from evarl.evaluators.configuration import NETWORKS
from evarl.learning.presets import PRESETS
from evarl.ope import registry as ope
from evarl.worlds import registry as worlds

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SELDOM = ("guide.md", "ope.md", "reproduce.md", "start.md")
"""Pages whose commands are run by `make test-slow` only: the README has the same, or tests/cli."""
LONG = ("start.md-0", "README.md-0", "README.md-1", "guide.md-5", "guide.md-7")
"""Blocks of Python that train and measure what others and the commands of the README do too."""


@pytest.fixture(autouse=True)
def nothing_stays_registered():
    """What a document registers is forgotten, so that no other test sees it."""
    tables = [
        ALGORITHMS._entries,
        NETWORKS._entries,
        BEHAVIOURS._entries,
        worlds._own._entries,
        ope._ESTIMATORS,
        ope.LABELS,
    ]
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


def blocks(language: str) -> list:
    found = []
    for page in PAGES:
        for number, code in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)):
            # tests/extensions has an algorithm, an evaluator and a kind of behaviour, and tests/worlds/test_registry.py a world
            seldom = language == "sh" and page.name in SELDOM
            seldom |= page.parent.name == "tutorials"  # which have an example each, run by `make test-slow`
            seldom |= f"{page.name}-{number}" in LONG and language == "python"
            seldom |= bool(re.search("register_(algorithm|evaluator|behaviour|world)", code))
            marks = [pytest.mark.slow] if seldom else []
            found.append(pytest.param(code, id=f"{page.name}-{number}", marks=marks))
    return found


FEW = {"warmup": 2, "initial_steps": 5, "final_steps": 5}
"""Of the evaluator; a few updates after the warm-up say as much as many."""
UPDATES = 5


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, tmp_path, monkeypatch):
    train = evarl.train

    def train_shortly(config="navigation", **options):
        config = evarl.preset(config) if isinstance(config, str) else config
        options["updates"] = min(options.get("updates", config.updates), UPDATES)
        return train(dataclasses.replace(config, evaluator=dataclasses.replace(config.evaluator, **FEW)), **options)

    monkeypatch.setattr(evarl, "train", train_shortly)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "block", "exec"), {})
    assert "import" in code


@pytest.mark.parametrize("code", blocks("sh"))
def test_commands_run(code, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    makefile = (ROOT / "Makefile").read_text()
    for line in filter(None, (line.split("#")[0].strip() for line in code.splitlines())):
        program, *arguments = line.split()
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE), line
            continue
        assert program == "evarl", line
        if "--updates" in arguments:
            arguments[arguments.index("--updates") + 1] = str(UPDATES)
            for name, number in FEW.items():
                arguments += [f"--evaluator.{name.replace('_', '-')}", str(number)]
        assert call(arguments) == 0, capfd.readouterr().err


def documented_commands() -> list:
    """What follows `evarl train` in the documents, the Makefile and the source, where a preset is named."""
    found = []
    for page in [*PAGES, ROOT / "Makefile", *sorted((ROOT / "src").rglob("*.py"))]:
        for text in re.findall(r"evarl train ([^`\"#&|\n]+)", page.read_text()):
            arguments = text.split()
            if arguments[0] in PRESETS:
                found.append(pytest.param(arguments, id=f"{page.name}: {text.strip()}"))
    return found


def documented_snippets() -> list:
    """Python blocks of the documents and examples of docstrings that train."""
    snippets = [
        (page.name, code) for page in PAGES for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    ]
    for module in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                examples = doctest.DocTestParser().get_examples(ast.get_docstring(node) or "")
                snippets.append((module.name, "".join(example.source for example in examples)))
    return [pytest.param(code, id=name) for name, code in snippets if "evarl.train(" in code]


def assert_the_evaluator_acts(config: evarl.TrainConfig) -> None:
    if config.resolved().evaluator_mode == "colearned":
        assert config.updates > config.evaluator.warmup, "no update comes after the warm-up of the evaluator"


@pytest.mark.parametrize("arguments", documented_commands())
def test_documented_commands_train_beyond_the_warm_up(arguments):
    preset, *options = arguments
    assert_the_evaluator_acts(parse(Train, options, "evarl train", Train(evarl.preset(preset))).config)


class Trains(Exception):  # noqa: N818
    """Carries the configuration that a snippet would train with."""


@pytest.mark.parametrize("code", documented_snippets())
def test_documented_snippets_train_beyond_the_warm_up(code, monkeypatch):
    assert code.count("evarl.train(") == 1, "only the first would be looked at"
    names = {field.name for field in dataclasses.fields(evarl.TrainConfig)}

    def train(config=None, env=None, **options):
        config = config or ("navigation" if env is None else "gymnasium")
        config = evarl.preset(config) if isinstance(config, str) else config
        raise Trains(evarl.with_settings(config, {name: options[name] for name in names & options.keys()}))

    monkeypatch.setattr(evarl, "train", train)
    with pytest.raises(Trains) as called:
        exec(compile(code, "snippet", "exec"), {})
    assert_the_evaluator_acts(called.value.args[0])


def test_examples_with_an_evaluator_are_looked_at():
    """The tests above would pass if nothing were found."""
    commands = [parameter.values[0] for parameter in documented_commands()]
    assert sum("--beta" in arguments for arguments in commands) >= 4  # README, Makefile, help, docs/certification.md
    assert len(documented_snippets()) >= 6
