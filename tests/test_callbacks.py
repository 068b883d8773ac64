"""Early stopping, Weights & Biases (a stand-in for its package) and TensorBoard."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

import evarl
from evarl.callbacks import Chunk, StopAtReturn, TensorBoard, WandB
from evarl.errors import InputError
from tests.evaluation.tiny import train_once

CONFIG = evarl.TrainConfig(environments=2, steps=16, updates=6, seeds=2, agent=evarl.AgentConfig(hidden_sizes=(8,)))


def chunk(returns, first: int = 0, seeds: tuple[int, ...] = (0, 1)) -> Chunk:
    return Chunk({"return": np.asarray(returns, np.float32)}, first, seeds, 2.0, 0.0, CONFIG, Path("runs/first"))


def events(folder: Path) -> dict[str, dict[int, float]]:
    """Values by tag and step in a folder, as TensorBoard reads them: a session purges what is after its start."""
    found: dict[str, dict[int, float]] = {}
    for path in sorted(folder.glob("events.out.tfevents.*"), key=lambda path: int(path.suffix[1:])):
        data = path.read_bytes()
        while data:
            size = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]
            if event.HasField("session_log"):
                found = {tag: {s: x for s, x in values.items() if s < event.step} for tag, values in found.items()}
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found


def test_stop_at_return_takes_the_mean_over_seeds_and_updates():
    stop = StopAtReturn(2.0, window=3)
    nan = np.nan
    assert not stop(chunk([[9.0, 9.0], [0.0, 0.0]]))
    assert not stop(chunk([[nan, nan], [nan, -9.0]], first=2))  # the last three: 9, 0, −9
    assert not stop(chunk([[14.0, 14.0]], first=4))  # 0, −9, 14
    assert stop(chunk([[1.0, 1.0], [-50.0, -50.0]], first=5))  # −9, 14, 1 have the mean 2
    assert not stop(chunk([[9.0]], first=0, seeds=(2,))), "other seeds begin anew"
    assert stop(chunk([[9.0], [9.0]], first=1, seeds=(2,)))
    for wrong, message in [(("high",), "threshold: 'high' is not allowed"), ((1.0, 0), "window: 0 is not allowed")]:
        with pytest.raises(InputError, match=message):
            StopAtReturn(*wrong)


@pytest.mark.slow
def test_stop_at_return_ends_training(tmp_path):
    run = evarl.train(CONFIG, updates=400, steps=64, out=tmp_path, quiet=True, callbacks=[StopAtReturn(-1e9, window=2)])
    assert 2 <= run.config.updates < 400
    assert run.summary["updates"] == run.config.updates


class Sent:
    """A run of Weights & Biases that keeps what it is sent."""

    def __init__(self, **options):
        self.options, self.rows, self.finished, self.axes = options, [], False, {}

    def define_metric(self, name, step_metric):
        self.axes[name] = step_metric

    def log(self, row):
        assert not self.finished
        self.rows.append(row)

    def finish(self):
        self.finished = True


def test_weights_and_biases_is_sent_the_mean_and_every_seed(tmp_path, monkeypatch):
    made = []
    fake = types.ModuleType("wandb")
    fake.init = lambda **options: made.append(Sent(**options)) or made[-1]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    run = evarl.train(CONFIG, out=tmp_path / "run", quiet=True, callbacks=[WandB(project="mine", mode="offline")])
    (sent,) = made
    assert sent.finished
    assert sent.axes == {"*": "steps"}
    assert sent.options == {
        "project": "mine", "mode": "offline", "name": "run, seeds-0-1", "config": run.config.to_dict()
    }  # fmt: skip
    entropy = run.metrics["entropy"].to_numpy().reshape(6, 2)
    assert [row["steps"] for row in sent.rows] == [32 * (update + 1) for update in range(6)]
    assert [row["update"] for row in sent.rows] == list(range(6))
    assert [row["seed-1/policy/entropy"] for row in sent.rows] == entropy[:, 1].tolist()
    np.testing.assert_allclose([row["policy/entropy"] for row in sent.rows], entropy.mean(axis=1), rtol=1e-6)
    assert sent.rows[0]["time/steps_per_second"] > 0


def test_without_its_package_weights_and_biases_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match="WandB requires the package 'wandb'; install it by pip install wandb"):
        WandB(project="mine")


def test_events_of_a_run_are_grouped_by_tags_on_environment_steps(tmp_path):
    run = train_once(CONFIG, tmp_path / "run")
    shown = {name: events(run.path / "tensorboard" / "seeds-0-1" / name) for name in ("mean", "seed-0", "seed-1")}
    entropy = run.metrics["entropy"].to_numpy().reshape(6, 2)
    steps = [32 * (update + 1) for update in range(6)]
    assert list(shown["seed-1"]["policy/entropy"]) == list(shown["mean"]["policy/entropy"]) == steps
    np.testing.assert_array_equal(list(shown["seed-1"]["policy/entropy"].values()), entropy[:, 1])
    np.testing.assert_allclose(list(shown["mean"]["policy/entropy"].values()), entropy.mean(axis=1), rtol=1e-6)
    assert {tag.split("/")[0] for tag in shown["mean"]} == {"return", "policy", "time"}
    evarl.train(run.config, updates=9, out=run.path, resume=True, quiet=True)
    later = events(run.path / "tensorboard" / "seeds-0-1" / "mean")
    assert list(later["policy/entropy"]) == [*steps, 224, 256, 288]
    assert list(later["policy/entropy"].values())[:6] == list(shown["mean"]["policy/entropy"].values())


@pytest.mark.slow
def test_events_can_be_written_elsewhere_too(tmp_path):
    callback = TensorBoard(tmp_path / "mine")
    run = evarl.train(CONFIG, seeds=1, out=tmp_path / "run", quiet=True, callbacks=[callback])
    mine, own = (events(path / "seeds-0-0" / "seed-0") for path in (tmp_path / "mine", run.path / "tensorboard"))
    assert mine == own
    assert not (tmp_path / "mine" / "seeds-0-0" / "mean").exists()
