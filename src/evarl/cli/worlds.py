"""`evarl worlds`: list the worlds, or what can vary in one of them."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from evarl.cli.parsing import parse
from evarl.cli.tables import PlainTable, print_table
from evarl.worlds.listed import listed_worlds

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
    if command.name is not None:
        from evarl.worlds.registry import make_world  # imports JAX

        _print_parameters(make_world(command.name))
        return
    table = PlainTable("world", "observations", "actions", "horizon", "discount")
    for one in listed_worlds():
        table.add_row(*map(str, one))
    for world in _registered():
        table.add_row(world.name, *_described(world))
    print_table(table)
    print("\nalso: tabular/FILE.npz, brax/NAME:BACKEND, and gymnasium/ID for environments with Box or Discrete spaces")
    print("`evarl worlds NAME` lists what can be hidden and vary in a world")


def _registered() -> list["AnyWorld"]:
    """Worlds that this process has registered, by `register_world`; none where nothing is imported yet."""
    if "evarl.worlds.registry" not in sys.modules:
        return []
    from evarl.worlds.registry import make_world, own_names

    return [make_world(name) for name in own_names()]


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
