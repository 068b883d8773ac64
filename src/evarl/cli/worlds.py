"""`evarl worlds`: list the worlds, or what can vary in one of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from evarl.cli.parsing import parse
from evarl.cli.tables import PlainTable, print_table

if TYPE_CHECKING:
    from evarl.worlds.world import AnyWorld


@dataclass(frozen=True)
class Worlds:
    """List the worlds with their spaces, horizon and discount. Any Gymnasium environment can be named as well."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None
    """World of which to list what can vary from site to site, hidden from the policy."""


def run(arguments: list[str]) -> None:
    """Print the table."""
    command = parse(Worlds, arguments, "evarl worlds", Worlds())

    from evarl.worlds.registry import make_world, world_names  # imports JAX

    if command.name is not None:
        _print_parameters(make_world(command.name))
        return
    table = PlainTable("world", "observations", "actions", "horizon", "discount")
    for name in world_names():
        table.add_row(name, *_described(make_world(name)))
    print_table(table)
    print("\nalso: tabular/FILE.npz, brax/NAME:BACKEND, and gymnasium/ID for environments with Box or Discrete spaces")


def _described(world: "AnyWorld") -> list[str]:
    """Spaces, horizon and discount of a world."""
    return [str(one) for one in (world.observation_space, world.action_space, world.horizon, world.discount)]


def _print_parameters(world: "AnyWorld") -> None:
    """Print one world, and what can vary in it."""
    print("{}: observations {}, actions {}, horizon {}, discount {}".format(world.name, *_described(world)))
    if not world.parameters:
        print("nothing can vary")
        return
    table = PlainTable("context", "default", "from", "to", "meaning")
    for one in world.parameters:
        table.add_row(one.name, f"{one.default:g}", f"{one.low:g}", f"{one.high:g}", one.description)
    print_table(table)
    example = world.parameters[0].example
    print(f"\nfor example: --context {example}; LOW:HIGH is a range, A,B,C a list of equally likely values")
