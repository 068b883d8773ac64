"""`make assessments`: the standard assessments in src/evarl/assessment/standard, from base policies with default settings.

Rounding, and with it a base policy, differs from one processor to the next: files made anew hold other states of the same kind.
So a file is only made where there is none; delete it to draw the start states of a world anew.
"""

import sys

from evarl.learning.base_policies import build_assessment
from evarl.learning.presets import preset
from evarl.runs.assessments import save_assessment
from evarl.runs.reuse import STANDARD, standard_file

GAMES = ("Asterix", "Breakout", "Freeway", "SpaceInvaders")
ROBOTS = ("halfcheetah", "reacher", "ant")
WORLDS = (*(f"gymnax/{game}-MinAtar" for game in GAMES), *(f"brax/{robot}" for robot in ROBOTS))
"""Worlds with a standard assessment: those of the paper, and Breakout."""


def main(worlds: tuple[str, ...]) -> None:
    """Make what is missing, and delete files of settings that are not the default any more."""
    files = {world: standard_file(preset(world).resolved()) for world in WORLDS}
    for world in worlds or WORLDS:
        if not files[world].exists():
            print(f"{world}: training its base policy", flush=True)
            save_assessment(files[world], build_assessment(preset(world).resolved(), print))
    for file in set(STANDARD.glob("*.safetensors")) - set(files.values()):
        print(f"deleting {file.name}, which belongs to no default")
        file.unlink()


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
