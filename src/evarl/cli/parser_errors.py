"""Messages of the parser of command lines, rewritten in the style of all other errors: what is wrong, and what is allowed."""

import difflib
import re
from collections.abc import Callable

from evarl.errors import unknown_name

KINDS = {"INT": "a whole number", "FLOAT": "a number", "{FLOAT FLOAT}": "two numbers"}
"""What is allowed, by how the parser writes it."""


def _values(listed: str) -> str:
    return " ".join(re.findall(r"'((?:[^'\\]|\\.)*)'", listed))


def _optional(found: re.Match[str]) -> str:
    name, kind, values = found.groups()
    return f"{name}: '{_values(values)}' is not allowed; must be {KINDS.get(kind, kind)}"


def _choice(found: re.Match[str]) -> str:
    value, name, known = found.groups()
    return str(unknown_name(name, value, _values(known).split()))


def _missing(found: re.Match[str]) -> str:
    name, text = found.groups()
    return f"{name.split()[0].removeprefix('--')}: is missing; must be given: {text[:1].lower()}{text[1:]}"


def _near(found: re.Match[str]) -> str:
    """A message that suggests an option: one that begins with the typed one, else the most similar after its last dot."""
    typed, listed = found.groups()
    last = typed.lstrip("-").rpartition(".")[2]

    def likeness(option: str) -> tuple[bool, float]:
        end = option.lstrip("-").rpartition(".")[2]
        return option.startswith(typed), difflib.SequenceMatcher(None, last, end).ratio()

    near = max(re.findall(r"(?:^| )(--[\w.-]+)", listed), key=likeness)
    return f"{typed}: unknown option; did you mean {near}? --help lists the options"


RULES: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (
        r"Error parsing --(\S+): no type matching \{None\}\|(.+?) could be instantiated from (\[.*?\])\. Got .*",
        _optional,
    ),
    (
        r"Error parsing (?:--)?(\S+): invalid literal for int\(\) with base 10: '(.*)'",
        lambda found: f"{found[1]}: '{found[2]}' is not allowed; must be a whole number",
    ),
    (
        r"Error parsing (?:--)?(\S+): could not convert string to float: '(.*)'",
        lambda found: f"{found[1]}: '{found[2]}' is not allowed; must be a number",
    ),
    (
        r"Error parsing (?:--)?(\S+): Could not find valid parse for arguments: (\[.*\])",
        lambda found: f"{found[1]}: '{_values(found[2])}' is not allowed; --help tells what it takes",
    ),
    (r"invalid choice '(.*)' for argument '(?:--)?(\S+)'\. Expected one of (\(.*\))\.", _choice),
    (r"Missing from evarl [\w -]+: ([A-Z]+(?: \[.*\])?|--\S+ \S+) (.*)\. \(required\)", _missing),
    (
        r"Missing value for argument '(?:--)?(\S+)'\. Expected .*",
        lambda found: f"{found[1]}: has no value; must be given one",
    ),
    (
        r"Unrecognized options: (--(?:total[-_]|num[-_]|max[-_])?(?:time|env)[-_]?steps)\b.*",
        lambda found: (
            f"{found[1]}: unknown option; training takes --updates × --environments × --steps, so set --updates"
        ),
    ),
    (r"Unrecognized options: (--\S+?),? .*?Perhaps you meant: (--\w.*)", _near),
    (
        r"Unrecognized options: (--\S+?)(?:, .*)?",
        lambda found: f"{found[1]}: unknown option; --help lists the options",
    ),
    (
        r"Unrecognized options: (.*)",
        lambda found: f"'{found[1]}' belongs to no option; --help lists the options",
    ),
)


def rewritten(message: str) -> str:
    """A message of the parser as one of ours, if its kind is known; else unchanged.

    >>> rewritten("Error parsing --beta: could not convert string to float: 'x'")
    "beta: 'x' is not allowed; must be a number"
    """
    for pattern, told in RULES:
        if (found := re.fullmatch(pattern, message)) is not None:
            return told(found)
    return message
