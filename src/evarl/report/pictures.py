"""Start states as text: boards of flags as pictures of characters, everything else as a few numbers."""

import itertools
import string

import numpy as np

CHANNELS = {
    "gymnax/Asterix-MinAtar": ("player", "enemy", "trail", "gold"),
    "gymnax/Breakout-MinAtar": ("paddle", "ball", "trail", "brick"),
    "gymnax/Freeway-MinAtar": ("chicken", "car", "speed 1", "speed 2", "speed 3", "speed 4", "speed 5"),
    "gymnax/SpaceInvaders-MinAtar": ("cannon", "alien", "going left", "going right", "own bullet", "alien bullet"),
    "gymnax/Seaquest-MinAtar": (
        *("submarine", "its stern", "own bullet", "trail", "enemy bullet", "fish", "enemy submarine"),
        *("oxygen", "divers aboard", "diver"),
    ),
}
"""Names of the channels of the games of MinAtar; those of other boards are numbered."""

NUMBERS = 8
"""Number of entries of a vector that are printed."""


def is_board(observation: np.ndarray) -> bool:
    """Whether an observation is a board of flags, [rows, columns, channels]."""
    return observation.ndim == 3 and observation.dtype == bool


def pictures(boards: np.ndarray, world: str) -> tuple[list[list[str]], str]:
    """Lines of text for each of k boards [k, rows, columns, C], and one legend for all.

    A cell with one flag is printed as the number of its channel, a cell with several as a letter for this combination.

    >>> board = np.zeros((1, 2, 3, 2), bool)
    >>> board[0, 0, 0, 0] = board[0, 1, 2, :] = True
    >>> pictures(board, "a game")
    ([['0 · ·', '· · a']], '0 channel 0   a channel 0 + channel 1')
    """
    known = CHANNELS.get(world, ())
    names = [*known, *(f"channel {channel}" for channel in range(len(known), boards.shape[-1]))]
    cells = [tuple(int(c) for c in np.flatnonzero(cell)) for cell in boards.reshape(-1, boards.shape[-1])]
    characters: dict[tuple[int, ...], str] = {(): "·"}
    letters = itertools.chain(string.ascii_letters, itertools.repeat("?"))
    for cell in sorted(set(cells) - {()}, key=lambda cell: (len(cell), cell)):
        characters[cell] = str(cell[0]) if len(cell) == 1 and cell[0] < 10 else next(letters)
    called = [f"{drawn} {' + '.join(names[c] for c in cell)}" for cell, drawn in characters.items() if cell]
    text = np.array([characters[cell] for cell in cells]).reshape(boards.shape[:-1])
    return [[" ".join(row) for row in board] for board in text], "   ".join(called)


def numbers(observation: np.ndarray) -> str:
    """The first entries of a vector.

    >>> numbers(np.array([0.25, 1.0]))
    '0.25, 1'
    """
    flat = [f"{float(x):.4g}" for x in observation.reshape(-1)[:NUMBERS]]
    more = observation.size - len(flat)
    return ", ".join(flat) + (f", … ({more} more)" if more else "")
