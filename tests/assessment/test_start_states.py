"""Start states written as the fields of a state: in Gymnax, in Gymnasium's classic control, in files and in training."""

import contextlib
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.assessment.assessment import Assessment
from evarl.assessment.scenarios import given_states, parse_start_states
from evarl.cli.main import call
from evarl.errors import FileError, InputError
from evarl.runs.assessments import load_assessment, save_assessment
from evarl.storage.tensors import load_arrays, save_tree
from evarl.worlds import Discrete, classic, make_world

STARTS = {
    "CartPole-v1": "0.1,0.2,0.05,-0.1 -0.5,0,-0.1,0 2.3,0.5,0.2,1",
    "Pendulum-v1": "0,0 3,-2 -9,7.5",
    "Acrobot-v1": "0,0,0,0 1,-0.5,2,-3 7,-2,0,1",
    "MountainCar-v0": "-0.5,0 0.3,0.05 -0.9,-0.01",
    "MountainCarContinuous-v0": "-0.5,0 0.3,0.05 -0.9,-0.01",
}
CONTEXTS = {
    "CartPole-v1": "length=0.3,1.5",
    "Pendulum-v1": "g=5,15",
    "Acrobot-v1": "link_length_1=0.6,1.5",
    "MountainCar-v0": "force=0.0006,0.0018",
    "MountainCarContinuous-v0": "power=0.0006,0.0025",
}


def written(world: Any, text: str) -> Any:
    return given_states(world, parse_start_states(text))


def assessment(name: str, horizon: int = 12, **given: Any) -> Assessment:
    """An assessment of a world from the start states above."""
    world = make_world(name, **given)
    return Assessment(world, written(world, STARTS[name.split("/")[1]]), horizon)


def leaning(world: Any) -> Any:
    """A policy that decides by the last number it is shown."""

    def act(key: jax.Array, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        ahead = observation[:, -1] > 0.0123
        if isinstance(world.action_space, Discrete):
            action = jnp.where(ahead, world.action_space.n - 1, 0)
        else:
            action = jnp.where(ahead, 0.7, -0.4)[:, None]
        return action, jnp.zeros(len(observation))

    return act


@pytest.mark.parametrize(
    "identifier", [pytest.param(one, marks=pytest.mark.slow if one == "Acrobot-v1" else []) for one in sorted(STARTS)]
)
def test_both_packages_agree_from_the_same_start_states_on_the_same_sites(identifier: str) -> None:
    found = []
    for package in ("gymnax", "gymnasium"):
        one = assessment(f"{package}/{identifier}", context=[CONTEXTS[identifier]])
        sites = jnp.asarray([[one.world.contexts[0].low], [one.world.contexts[0].high]], jnp.float32)
        found.append((one.observations(), one.take(leaning(one.world), jax.random.PRNGKey(0), 2, contexts=sites)))
    (shown, ours), (seen, theirs) = found
    np.testing.assert_allclose(seen, shown, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(theirs.observation[0, :3, 0], seen, rtol=1e-6)
    np.testing.assert_array_equal(theirs.alive, ours.alive)
    alive = np.asarray(ours.alive)
    np.testing.assert_array_equal(np.asarray(theirs.action)[alive], np.asarray(ours.action)[alive])
    np.testing.assert_allclose(
        np.asarray(theirs.observation)[alive], np.asarray(ours.observation)[alive], rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(theirs.reward, ours.reward, rtol=1e-3, atol=1e-4)
    assert np.abs(np.asarray(ours.observation)[-1, :3] - np.asarray(ours.observation)[-1, 3:]).max() > 1e-3
    assert alive.all() == (identifier in ("Acrobot-v1", "Pendulum-v1")), "elsewhere an episode ends"


@pytest.mark.parametrize("identifier", sorted(STARTS))
def test_a_state_of_gymnasium_is_continued_as_gymnasium_would(identifier: str) -> None:
    """Observations and steps from a state that Gymnasium itself reached are the same as without an interruption."""
    world, other = make_world(f"gymnasium/{identifier}"), gymnasium.make(identifier).unwrapped
    environments = world.open(1)
    action = 0 if isinstance(world.action_space, Discrete) else np.full(1, 0.5, np.float32)
    shown, _ = other.reset(seed=5)
    for _ in range(3):
        np.testing.assert_array_equal(environments.begin(0, np.asarray(other.state)), shown)
        step = environments.step(np.asarray([action]))
        shown, reward, terminated, _, _ = other.step(action)
        np.testing.assert_allclose(step.observation[0], shown, rtol=1e-6, atol=1e-7)
        assert (float(step.reward[0]), bool(step.terminated[0])) == (pytest.approx(float(reward)), terminated)
    environments.close()
    other.close()


def is_refused(world: Any, numbers: np.ndarray) -> bool:
    """Whether no episode can begin at a state."""
    with contextlib.suppress(ValueError):
        world.state_from(numbers)
        return False
    return True


@pytest.mark.parametrize("identifier", sorted(STARTS))
@pytest.mark.slow
def test_fields_and_ends_are_those_of_gymnax(identifier: str) -> None:
    ours, theirs = make_world(f"gymnax/{identifier}"), make_world(f"gymnasium/{identifier}")
    assert ours.state_fields == theirs.state_fields == classic.STATES[identifier].fields
    generator = np.random.default_rng(0)
    scale = np.array([6.0, 3.0, 0.4, 3.0]) if identifier == "CartPole-v1" else np.array([4.0, 2.0, 1.0, 1.0])
    ends = []
    for numbers in generator.uniform(-1, 1, (60, len(ours.state_fields))) * scale[: len(ours.state_fields)]:
        ends += [is_refused(world, numbers) for world in (ours, theirs)]
        assert ends[-2] == ends[-1], numbers
    assert any(ends) == (identifier != "Pendulum-v1")


def test_everything_else_is_zero() -> None:
    states = written(make_world("gymnax/Pendulum-v1"), "1,2 -1,0.5")
    assert {name: getattr(states, name).tolist() for name in ("theta", "theta_dot", "last_u", "time")} == {
        "theta": [1.0, -1.0],
        "theta_dot": [2.0, 0.5],
        "last_u": [0.0, 0.0],
        "time": [0, 0],
    }
    assert (states.theta.dtype, states.time.dtype) == (np.float32, np.int32)
    lake = written(make_world("gymnax/FrozenLake-misc"), "0 14")
    assert (lake.position.tolist(), lake.position.dtype) == ([0, 14], np.int32)
    fruit = written(make_world("gymnax/Catch-bsuite"), "3,0,2,9")
    assert (fruit.ball_x.tolist(), fruit.paddle_y.tolist(), fruit.prev_done.tolist()) == ([3], [9], [False])


def test_seeds_and_states_are_told_apart_by_what_is_written() -> None:
    world = make_world("gymnasium/CartPole-v1")
    seeds, states = written(world, "3 7 11"), written(world, "0.1,0,0,0 1,0,0,0")
    assert (seeds.tolist(), seeds.dtype) == ([3, 7, 11], np.int64)
    assert (states.tolist(), states.dtype) == ([[0.1, 0, 0, 0], [1, 0, 0, 0]], np.float64)
    assert Assessment(world, states.tolist(), 3).start_states.dtype == np.float64


@pytest.mark.parametrize("package", ["gymnax", "gymnasium"])
@pytest.mark.parametrize(
    ("identifier", "text", "message"),
    [
        ("CartPole-v1", "0,0,0", "a state of {} has 4 numbers, x,x_dot,theta,theta_dot"),
        ("Pendulum-v1", "0,0,0", "a state of {} has 2 numbers, theta,theta_dot"),
        ("CartPole-v1", "0,0,nan,0", "must be finite numbers"),
        ("CartPole-v1", "0,1e39,0,0", "must be finite numbers"),
        ("CartPole-v1", "0,0,0.3,0", "must be a state in which the episode has not ended"),
        ("MountainCar-v0", "0.55,0.01", "must be a state in which the episode has not ended"),
        ("MountainCar-v0", "-1.3,0", "(-1.3, 0.0) is outside of {}, which shows Box(2, … to …, float32)"),
        ("Pendulum-v1", "0,9", "(0.0, 9.0) is outside of {}"),
    ],
)
def test_what_is_refused(package: str, identifier: str, text: str, message: str) -> None:
    world = make_world(f"{package}/{identifier}")
    with pytest.raises(InputError) as caught:
        written(world, text)
    assert str(caught.value).startswith("assessment.start-states: ")
    assert message.format(world.name) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gymnasium/CartPole-v1", "0.5 0.7", "must be one whole number for each state, or x,x_dot,theta,theta_dot"),
        ("gymnasium/FrozenLake-v1", "1e300", "must be one whole number for each state"),
        ("gymnasium/FrozenLake-v1", "1,2", "must be one whole number for each state"),
        ("gymnax/FrozenLake-misc", "0.5", "position must be a whole number"),
        ("gymnax/FrozenLake-misc", "16", "position must be from 0 to 15"),
        ("gymnax/FrozenLake-misc", "15", "must be a state in which the episode has not ended"),  # the goal
        ("gymnax/Reacher-misc", "0,0", "is more than a list of numbers"),
    ],
)
def test_what_one_world_refuses(name: str, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        written(make_world(name), text)
    assert message in str(caught.value)


@pytest.mark.parametrize("states", [np.zeros((2, 3)), np.zeros((0, 4)), np.full((1, 4), np.inf), [[["a"]]]])
def test_arrays_that_are_no_states_are_refused(states: Any) -> None:
    wanted = r"or k states of 4 finite numbers \(x, x_dot, theta, theta_dot\)$"
    with pytest.raises(InputError, match=wanted):
        Assessment(make_world("gymnasium/CartPole-v1"), states, 3)


def test_an_environment_without_known_states_cannot_begin_at_one() -> None:
    environments = make_world("gymnasium/Taxi-v4").open(1)
    with pytest.raises(InputError, match=r"^gymnasium/Taxi-v4: cannot begin at a state of 1 numbers$"):
        environments.begin(0, np.zeros(1))
    environments.close()


@pytest.mark.parametrize("package", ["gymnax", "gymnasium"])
def test_start_states_survive_the_disk(package: str, tmp_path: Path) -> None:
    before = assessment(f"{package}/CartPole-v1")
    save_assessment(tmp_path / "one.safetensors", before)
    after = load_assessment(tmp_path / "one.safetensors")
    assert after.scenarios == 3
    for one, other in zip(jax.tree.leaves(before.start_states), jax.tree.leaves(after.start_states), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "start", [np.zeros((2, 3)), np.full((2, 4), np.nan), np.full((1, 4), 9.0), np.zeros((0, 4)), np.zeros((1, 4), "f4")]
)
def test_damaged_start_states_are_refused(start: np.ndarray, tmp_path: Path) -> None:
    save_assessment(tmp_path / "one.safetensors", assessment("gymnasium/CartPole-v1"))
    about = load_arrays(tmp_path / "one.safetensors")[1]
    save_tree(tmp_path / "other.safetensors", {"start": start}, about)
    with pytest.raises(FileError, match=r"other\.safetensors: ") as caught:
        load_assessment(tmp_path / "other.safetensors")
    assert "\n" not in str(caught.value)


SMALL: dict[str, Any] = {
    **{
        "context": ("length=0.3:2",),
        "horizon": 8,
        "beta": 0.5,
        "updates": 2,
        "steps": 8,
        "environments": 4,
        "seeds": 1,
    },
    **{"contexts": 2, "rollouts_per_start": 2, "context_updates": 1, "evaluator.warmup": 1},
    **{"evaluator.initial_steps": 2, "evaluator.steps": 2, "evaluator.final_steps": 2, "assessment.horizon": 4},
    "assessment.start_states": STARTS["CartPole-v1"],
}


@pytest.mark.slow
@pytest.mark.parametrize("package", ["gymnax", "gymnasium"])
def test_training_from_written_start_states(package: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = f"{package}/CartPole-v1"
    config = evarl.with_settings(evarl.preset("crossing"), SMALL | {"world": world})
    run = evarl.train(config, out=tmp_path / "run", quiet=True)
    kept = evarl.Run.load(run.path).assessment
    assert kept is not None
    np.testing.assert_allclose(kept.observations(), parse_start_states(STARTS["CartPole-v1"]), rtol=1e-6)
    (run.path / "summary.json").unlink()
    sorted(run.path.glob("checkpoints/*/*"))[-1].unlink()
    again = evarl.train(config, out=tmp_path / "run", resume=True, quiet=True)
    assert again.metrics.num_rows == 2
    found = evarl.assess(again, context={"length": 0.5}, states="0,0,0.1,0", truth_episodes=2)
    assert (found.returns.shape, found.predicted_at_states.shape) == ((3, 1), (1,))
    assert call(["evaluate", str(run.path), "--sites", "2", "--rollouts", "2"]) == 0
    assert "evaluator" in capsys.readouterr().out
