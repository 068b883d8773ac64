"""docs/metrics.md has every metric that training writes, with its tag, and no other."""

import re
from pathlib import Path

import jax
import pytest

import evarl
from evarl.learning.learner import make_learner
from evarl.learning.presets import preset
from evarl.runs.events import TIME, tag
from evarl.runs.train import new_assessment
from tests.evaluation.tiny import train_once, train_tiny

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
TAGS = dict(re.findall(r"^\| `(\w+)` \| `(\w+/\w+)` \|", PAGE, re.MULTILINE))
COUNTED = re.findall(r"^\| `(\w+)` \| [^`]", PAGE, re.MULTILINE)
AWARE = {"beta": 0.05, "environments": 4, "steps": 8, "rollouts_per_start": 2}
DECIDES = {
    "target_error": 0.5,
    "evaluator.warmup_ends": "auto",
    "evaluator.memory": "diverse",
    "evaluator.perturbed": 2,
}
HOST = {"world": "gymnasium/CartPole-v1", "beta": 0.05, "environments": 2, "steps": 8, "updates": 1}
KINDS = {
    "ordinary": ("navigation", {}),
    "a2c": ("navigation", AWARE),
    "ppo": ("navigation", AWARE | {"agent.algorithm": "ppo"}),
    "passive": ("navigation", {"evaluator_mode": "colearned"}),
    "decides": ("navigation", AWARE | DECIDES),
    "family": ("crossing", {"beta": 1.0, "environments": 12, "contexts": 4}),
}


def written(name: str) -> set[str]:
    """The metrics of one update, traced and not run; all but `fault`, at which training stops, are written."""
    base, changes = KINDS[name]
    config = evarl.with_settings(preset(base), changes).resolved()
    learner = make_learner(config, None if config.evaluator_mode == "none" else new_assessment(config, print))
    state = jax.eval_shape(learner.init, jax.random.PRNGKey(0))
    index = jax.ShapeDtypeStruct((), "int32")
    return set(jax.eval_shape(learner.update, state, index)[1]) - {"fault"}


@pytest.fixture(scope="module")
def found() -> dict[str, set[str]]:
    return {name: written(name) for name in KINDS}


@pytest.mark.parametrize("name", KINDS)
def test_every_metric_is_on_the_page(found, name):
    assert found[name] <= TAGS.keys()


def test_every_metric_on_the_page_is_written(found):
    assert set().union(*found.values()) == TAGS.keys()


def test_columns_of_runs_are_those_of_the_page(found, tmp_path):
    assert set(train_tiny(tmp_path / "compiled").metrics.column_names) == found["a2c"] | set(COUNTED)


@pytest.mark.slow
def test_columns_of_runs_on_the_host_are_those_of_the_page(found, tmp_path):
    config = evarl.with_settings(preset("navigation"), HOST | {"assessment.start_states": "1 2"})
    assert set(train_once(config, tmp_path / "host").metrics.column_names) == found["a2c"] | set(COUNTED)


def test_tags_of_the_page_are_those_that_are_written():
    assert {name: tag(name) for name in TAGS} == TAGS
    assert f"| `{TIME}` |" in PAGE


def test_what_is_said_to_be_for_some_runs_only_is(found):
    assert found["ppo"] - found["a2c"] == {"policy_divergence"}
    assert found["decides"] - found["a2c"] == {"beta", "warmup_ended", "perturbed_steps"}
    assert found["family"] == found["a2c"]
    evaluability = {name for name in found["a2c"] if re.fullmatch(r"(assessment_)?weight_\w+|weights_bounded", name)}
    assert found["a2c"] - found["passive"] == evaluability
    sections = dict(re.findall(r"^## (\w+)[^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
    assert {name for name in TAGS if f"| `{name}` |" in sections["Evaluability"]} == evaluability | {"beta"}
