"""`evarl worlds`: list the worlds."""

from dataclasses import dataclass

from evarl.cli.parsing import parse
from evarl.cli.tables import PlainTable, print_table


@dataclass(frozen=True)
class Worlds:
    """List the worlds with their spaces, horizon and discount. Any Gymnasium environment can be named as well."""


def run(arguments: list[str]) -> None:
    """Print the table."""
    parse(Worlds, arguments, "evarl worlds", Worlds())

    from evarl.worlds.registry import make_world, world_names  # imports JAX

    table = PlainTable("world", "observations", "actions", "horizon", "discount")
    for name in world_names():
        world = make_world(name)
        table.add_row(name, *map(str, (world.observation_space, world.action_space, world.horizon, world.discount)))
    print_table(table)
    print("\nalso: tabular/FILE.npz, brax/NAME:BACKEND, and gymnasium/ID for environments with Box or Discrete spaces")
