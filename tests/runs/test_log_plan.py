"""What the log of the whole training keeps: every episode with the same probability, no more than was asked for."""

import itertools

import numpy as np
import pytest

from evarl.agents.trajectory import Trajectory
from evarl.runs import log_plan
from evarl.runs.log import LogWriter, read_log
from evarl.runs.log_plan import Sizes, sampled, windows

SEED = 3


def every_coin(heights: dict[int, int]):
    """All outcomes of so many coins at each height, as functions that `windows` takes."""
    for flat in itertools.product((False, True), repeat=sum(heights.values())):
        tossed, table = iter(flat), {}
        for height, count in heights.items():
            table[height] = np.array([next(tossed) for _ in range(count)])
        yield lambda height, count, table=table: table[height][:count]


@pytest.mark.parametrize("blocks", [1, 5, 7, 8])
def test_every_block_has_a_window_in_the_same_share_of_all_outcomes(blocks):
    times, outcomes = np.zeros(blocks, int), 0
    for coins in every_coin({1: 4, 2: 2}):
        times[windows(blocks, 2, coins)] += 1
        outcomes += 1
    assert times.tolist() == [outcomes // 4] * blocks


def played(updates: int, steps: int, environments: int, longest: int) -> tuple[list[Trajectory], set[float]]:
    """Batches of one seed with episodes of 1 to `longest` steps, and the numbers (rewards) of those that end."""
    rng = np.random.default_rng(0)
    total = updates * steps
    number, label = np.zeros((total, environments), np.float32), np.full((total, environments), -1, np.int32)
    terminated = np.zeros((total, environments), bool)
    ended = set()
    for n in range(environments):
        t, count = 0, 0
        while t < total:
            length, own = int(rng.integers(1, longest + 1)), 1000.0 * n + count
            number[t : t + length, n], label[t, n] = own, 0
            if t + length <= total:
                terminated[t + length - 1, n] = True
                ended.add(own)
            t, count = t + length, count + 1
    seen = np.zeros((total, environments, 1), np.float32)
    columns = seen, np.zeros_like(label), np.zeros_like(number), number, terminated, np.zeros_like(terminated), label
    final, last = np.zeros((1, 1, environments, 1), np.float32), np.zeros((1, environments, 1), np.float32)
    rows = [slice(u * steps, (u + 1) * steps) for u in range(updates)]
    return [Trajectory(*(column[row][None] for column in columns), final, last) for row in rows], ended


def test_every_episode_is_logged_in_the_same_share_of_all_outcomes(tmp_path, monkeypatch):
    """By enumeration: in every environment, be the episode short or long, early or late."""
    updates, steps, longest = 27, 3, 6
    batches, ended = played(updates, steps, 2, longest)
    sizes = Sizes(episode=3, environments=2, fitting=0, at_hand=True)  # 5 blocks of 6 updates, the last one cut
    monkeypatch.setattr(log_plan, "_level", lambda sizes, updates: (2, 2))
    times, outcomes = dict.fromkeys(ended, 0), 0
    for coins in every_coin({1: 4, 2: 2}):
        monkeypatch.setattr(log_plan, "_coins", lambda seed, height, count, coins=coins: coins(height, count))
        plan = sampled(sizes, SEED, updates, [])
        writer = LogWriter(tmp_path / str(outcomes), plan, 0)
        for update, batch in enumerate(batches):
            writer.add(update, batch)
        writer.flush()
        outcomes += 1
        data = read_log(tmp_path / str(outcomes - 1), 0, plan=plan)
        for row, mask in zip(data.reward, data.mask, strict=True):
            (own,) = {float(number) for number in row[mask]}
            times[own] += 1
    assert outcomes == 64
    assert set(times.values()) == {16}


@pytest.mark.parametrize("seed", range(5))
def test_the_log_of_a_longer_run_is_among_that_of_a_shorter_one(seed):
    for fitting, at_hand in itertools.product((3, 40, 400, 4000), (False, True)):
        sizes = Sizes(2, 8, fitting, at_hand)
        plans = [sampled(sizes, seed, updates, range(7, updates, 50)) for updates in (7, 57, 157, 507)]
        for shorter, longer in itertools.pairwise(plans):
            done = len(shorter.recorded)
            assert not (longer.recorded[:done] & ~shorter.recorded).any()
            kept = len(longer.environments)
            assert shorter.environments[:kept].tolist() == longer.environments.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_no_more_is_logged_than_fits_nor_than_a_fifth_of_the_updates(seed):
    for updates, episode, fitting in itertools.product((1, 30, 300, 5000), (1, 2, 30), (0, 1, 100, 10_000)):
        plan = sampled(Sizes(episode, 16, fitting, False), seed, updates, [])
        assert plan.recorded.sum() * len(plan.environments) <= fitting
        assert (plan.counted <= plan.recorded).all()
        everything = fitting >= 16 * updates
        assert not everything or (plan.counted.all() and len(plan.environments) == 16)
        if updates > 64 * episode and not everything:
            assert plan.recorded.sum() <= 0.2 * updates + 3 * episode  # the last stratum may extend past the end
            assert (np.diff(np.flatnonzero(plan.counted)) <= 32 * episode).all() or fitting < 5000


def test_environments_are_a_uniform_choice():
    """Over 2000 seeds each of 4 is among the 2 that are kept half of the time, up to 4 standard errors."""
    sizes, times = Sizes(2, 4, 24, True), np.zeros(4)
    for seed in range(2000):
        times[sampled(sizes, seed, 12, []).environments] += 1
    assert times.sum() == 4000
    assert (np.abs(times - 1000) < 4 * np.sqrt(500)).all()
