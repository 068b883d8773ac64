# A safety engineer: the value of a policy from logs, then a certificate for it, and its verification by somebody else.
cat > mine.py <<'PY'
import evarl
import numpy as np

weights = np.array([0.0, 0.5, 8.0, 2.0])


def probabilities(observation):
    """0.9 for the side to which the pole falls."""
    right = (observation @ weights > 0)[:, None]
    return np.where(right, [[0.1, 0.9]], [[0.9, 0.1]])


policy = evarl.policies.from_numpy(
    lambda observation: (observation @ weights > 0).astype(int), gives="actions", parameters={"weights": weights}
)
PY
python - <<'PY'
import gymnasium
import numpy as np

rng, rows = np.random.default_rng(0), ["episode,step,observation_0,observation_1,observation_2,observation_3,action,reward,terminated,truncated,log_prob"]
env = gymnasium.make("CartPole-v1", max_episode_steps=20)
weights = np.array([0.0, 0.5, 8.0, 2.0])
for episode in range(300):
    seen, _ = env.reset(seed=episode)
    ended = cut = False
    step = 0
    while not ended and not cut:
        falls = int(seen @ weights > 0)
        action = falls if rng.random() < 0.8 else 1 - falls
        chance = 0.8 if action == falls else 0.2
        following, reward, ended, cut, _ = env.step(action)
        rows.append(",".join(map(str, [episode, step, *seen, action, reward, int(ended), int(cut), np.log(chance)])))
        seen, step = following, step + 1
open("log.csv", "w").write("\n".join(rows))
PY
evarl ope log.csv --policy-import mine:probabilities --discount 1 --methods pdis wpdis fqe-linear --missing-final drop
evarl certify certificates/linear --policy-import mine:policy --world gymnasium/CartPole-v1 --horizon 50 --range 0 50 --threshold 40 --rollouts 100
evarl verify certificates/linear/certificates/mean-return-*.json --policy-import mine:policy
