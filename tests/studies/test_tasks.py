"""What a training job stores of off-policy estimates: those from the last updates and those from the whole training."""

from evarl.ope.registry import LABELS
from evarl.studies.jobs import Job, Store
from evarl.studies.tasks import train_and_evaluate

TINY = {"environments": 2, "steps": 16, "seeds": 2, "updates": 8, "horizon": 8, "agent.hidden_sizes": [8]}
METHODS = ("fqe-linear", "tis")


def test_both_parts_of_the_log_are_scored(tmp_path):
    settings = {"preset": "navigation", "changes": TINY, "methods": list(METHODS), "fqe_steps": 1}
    job = Job("training", "train", settings | {"states": 2, "rollouts": 2, "log_megabytes": 0.004})
    store = Store(tmp_path / "store")
    store.work(job).mkdir(parents=True)
    record = train_and_evaluate(job, store)
    for seed in record["seeds"]:
        assert seed["logs"].keys() == {"recent", "all"}
        for log in seed["logs"].values():
            assert log["effective_sample_size"].keys() == set(METHODS)
        asked = seed["queries"]["start"]
        labels = {LABELS[method] for method in METHODS}
        assert asked["scores"].keys() == labels | {"critic"}
        assert asked["scores_all"].keys() == labels
        for name in labels:
            assert (
                asked["scores"][name].keys()
                == asked["scores_all"][name].keys()
                == {"mae", "mse", "bias", "noise", "rank"}
            )
            assert asked["scores"][name]["mae"] != asked["scores_all"][name]["mae"]
    assert not list((store.work(job) / "run").glob("log*"))


def test_without_a_log_there_is_none_in_the_record(tmp_path):
    settings = {"preset": "navigation", "changes": TINY, "methods": [], "fqe_steps": 1}
    job = Job("training", "train", settings | {"states": 2, "rollouts": 2, "log_megabytes": 0})
    store = Store(tmp_path / "store")
    store.work(job).mkdir(parents=True)
    (seed, _) = train_and_evaluate(job, store)["seeds"]
    assert seed["logs"] == {}
    assert "scores_all" not in seed["queries"]["start"]
