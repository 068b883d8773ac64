"""The list of worlds that `evarl worlds` prints is what the libraries make."""

import pytest

from evarl.worlds.listed import Listed, listed_worlds
from evarl.worlds.registry import make_world, own_names, world_names


@pytest.mark.slow
def test_the_list_is_what_the_libraries_make():
    own = own_names()  # other tests may have registered some
    made = [make_world(name) for name in world_names() if name not in own]
    found = [Listed(w.name, str(w.observation_space), str(w.action_space), w.horizon, w.discount) for w in made]
    assert found == list(listed_worlds())
