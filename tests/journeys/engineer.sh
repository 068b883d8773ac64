# An engineer with an environment of their own: train, test, record and export.
cat > my_envs.py <<'PY'
import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    """Walk to the right end; action 5 is left, 6 is right."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2, start=5)

    def __init__(self, length=8, render_mode=None):
        self.length, self.render_mode = length, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(self.length // 2))
        return self._seen(), {}

    def step(self, action):
        self.place = min(self.length, max(0, self.place + (1 if action == 6 else -1)))
        return self._seen(), -1.0, self.place == self.length, False, {}

    def render(self):
        picture = np.zeros((32, 32 * (self.length + 1), 3), np.uint8)
        picture[:, 32 * self.place : 32 * (self.place + 1)] = 255
        return picture

    def _seen(self):
        return np.array([self.place / self.length], np.float32)


gymnasium.register("Corridor-v0", entry_point=Corridor, max_episode_steps=30)
PY
evarl train gymnasium/my_envs:Corridor-v0 --make length=6 --beta 0.1 --updates 40 --out runs/mine --quiet
evarl assess runs/mine --allow-module my_envs
evarl video runs/mine --allow-module my_envs --out mine.gif
python - <<'PY'
import evarl, my_envs
import numpy as np

run = evarl.load("runs/mine", allow_modules=["my_envs"])
assert (run.predict(np.array([[0.0], [0.5]], np.float32)) == 6).all(), "to the right, in the environment's own numbers"
run.export("policy.stablehlo")
own = evarl.train(env=my_envs.Corridor, updates=2, horizon=30, quiet=True)
assert own.predict(np.zeros(1, np.float32)) in (5, 6)
PY
