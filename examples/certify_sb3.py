"""Train a policy with Stable-Baselines3 and certify a lower bound on its mean return.

    pip install 'evarl[sb3]'
    python examples/certify_sb3.py [FOLDER] [STEPS]

The same on the command line, for a model that was saved (the loader of Stable-Baselines3 unpickles: only files that you trust):

    evarl certify FOLDER/certified --policy-sb3 FOLDER/ppo_cartpole.zip --world gymnasium/CartPole-v1 --range 0 500
"""

import sys
from pathlib import Path

from stable_baselines3 import PPO

import evarl


def main(folder: Path, steps: int) -> None:
    """Train, certify, verify, and ask for the deterministic version of the policy as well."""
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=512, seed=0, device="cpu").learn(steps)
    model.save(folder / "ppo_cartpole.zip")
    world = {"world": "gymnasium/CartPole-v1"}
    terms = evarl.Terms(range=(0.0, 500.0), rollouts=200)  # every return is from 0 to 500 by the rules of CartPole
    for name, deterministic in (("certified", False), ("certified-deterministic", True)):
        policy = evarl.policies.from_stable_baselines3(model, deterministic=deterministic)
        run = evarl.outside_directory(folder / name, policy, **world)
        issued = evarl.certify(run, terms)
        print(policy.description)
        print(issued.certificate.conclusion.statement)
    verified = evarl.verify_certificate(issued.path, reliance=evarl.Reliance(policy=policy), rerun=False)
    print(f"verified: {verified.verified}; the page is {issued.html}")


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "sb3")
    target.mkdir(parents=True, exist_ok=True)
    main(target, int(sys.argv[2]) if len(sys.argv) > 2 else 20_000)
