from .acting import ActingOutside as ActingOutside
from .outside import Gives as Gives, OutsidePolicy as OutsidePolicy
from .stable_baselines3 import (
    from_stable_baselines3 as from_stable_baselines3,
    load_stable_baselines3 as load_stable_baselines3,
)
from .wrap import from_numpy as from_numpy, from_torch as from_torch, wrap_policy as wrap_policy
