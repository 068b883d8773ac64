"""`make docs-pages`: docs/command-line.md, every command and option, from the parsers of the commands themselves."""

import argparse
import contextlib
import importlib
import io
import re
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import tyro

from evarl.cli.main import COMMANDS
from evarl.cli.parsing import HELP_ALL
from evarl.learning.presets import PRESETS, preset
from evarl.report.markdown import escaped, markdown_table
from evarl.storage.files import write_bytes

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
HEAD = """# Command line

<!-- Written by `make docs-pages` (tools/command_line.py) from the parsers of the commands; do not edit. -->

`evarl COMMAND --help` prints the same. Every command exits with 0 when it is done, 1 when the work failed or a claim was not
shown, 2 when it was refused, 130 after Ctrl-C and 143 after SIGTERM. Errors are one line on standard error.
"""
TRAIN = """`evarl train PRESET` begins with the settings of a preset, and every option below changes one of them. Defaults are
those of navigation; [what other presets change](#settings-of-the-presets) has a table of its own. The same names are fields of
[`evarl.TrainConfig`](reference/configuration.md) in Python, with `_` in place of `-`.
"""
DEFAULT = re.compile(r"\s*\((default: (?P<value>.*)|required|repeatable|fixed.*)\)\s*$", re.DOTALL)


class Found(Exception):  # noqa: N818
    """Carries what a command would parse its arguments with."""


def page() -> str:
    """The whole page."""
    index = markdown_table(
        ("command", "what it does"),
        [(f"[`evarl {name}`](#evarl-{name})", escaped(text)) for name, text in COMMANDS.items()],
        (False, False),
    )
    parts = [HEAD, index, ""]
    for name in COMMANDS:
        parts += [section(name), *([presets()] if name == "train" else [])]
    return "\n".join(parts).rstrip() + "\n"


def section(name: str) -> str:
    """One command: its usage, what it does, and its options by group."""
    parser = parser_of(name)
    places = [action for action in parser._actions if not action.option_strings]
    words = [place(action) for action in places]
    usage = f"```text\nevarl {name}{' PRESET' if name == 'train' else ''} {' '.join([*words, '[options]'])}\n```"
    about = [paragraph(text) for text in (parser.description or "").split("\n\n")]
    parts = [f"## evarl {name}", "", usage, "", "\n\n".join(about), ""]
    if name == "train":
        parts += [TRAIN]
    for group in parser._action_groups:
        rows = [row(action) for action in group._group_actions if action.dest != "help"]
        if rows:
            title = (group.title or "").removesuffix(" options")
            parts += [f"**{title}**", ""] if title not in ("options", "positional arguments", "") else []
            parts += [markdown_table(("option", "value", "default", "meaning"), rows, (False,) * 4), ""]
    return "\n".join(parts)


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of a command, found by calling the command with one that does nothing."""
    module = importlib.import_module(f"evarl.cli.{name}")

    def found(kind: type, arguments: list[str], program: str, default: Any) -> None:
        raise Found(kind, program, default)

    with mock.patch.object(module, "parse", found), contextlib.redirect_stdout(io.StringIO()):
        try:
            module.run([HELP_ALL if name == "train" else "--help"])
        except Found as one:
            kind, program, default = one.args
        else:
            raise AssertionError(f"evarl {name} has no parser")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # tyro 1 has no other way to see its arguments
        return tyro.extras.get_parser(kind, prog=program, default=default)


def row(action: argparse.Action) -> tuple[str, str, str, str]:
    """Names, kind of value, default and meaning of one option."""
    text = str(action.help or "")
    found = DEFAULT.search(text)
    shown = "" if found is None else found.group("value") if found.group("value") is not None else found.group(1)
    flag, names = action.nargs == 0, action.option_strings[:2] if action.nargs == 0 else action.option_strings[:1]
    if shown == "None" or (flag and len(names) == 1):
        shown = ""
    shown = shown if shown in ("required", "repeatable") else code(shown)
    value = "" if flag or not names else kind_of_value(str(action.metavar))
    return " ".join(map(code, names)) or code(place(action)), value, shown, paragraph(DEFAULT.sub("", text))


def kind_of_value(metavar: str) -> str:
    """What can follow an option: alternatives one by one.

    >>> kind_of_value("{None}|{FLOAT FLOAT}"), kind_of_value("{None,a,b}"), kind_of_value("[STR [STR ...]]")
    ('`FLOAT FLOAT`', '`a` `b`', '`STR …`')
    """
    value = metavar.removeprefix("{None}|")
    if found := re.fullmatch(r"\{([^{}]+)\}", value):
        return " ".join(code(one) for one in found.group(1).split(",") if one != "None")
    return code(re.sub(r"^\[(\w+) \[\1 \.\.\.\]\]$", r"\1 …", value))


def place(action: argparse.Action) -> str:
    """The name of an argument without an option."""
    return str(action.dest).upper() if str(action.metavar) == "[STR]" else str(action.metavar)


def presets() -> str:
    """The settings in which presets differ, side by side."""
    names = list(PRESETS)
    settings = {name: flat(preset(name).to_dict()) for name in names}
    differing = [key for key in settings[names[0]] if len({str(settings[name][key]) for name in names}) > 1]
    rows = [
        (code(f"--{key.replace('_', '-')}"), *(code(written(settings[name][key])) for name in names))
        for key in differing
    ]
    return f"### Settings of the presets\n\n{markdown_table(('setting', *names), rows, (False,) * (1 + len(names)))}\n"


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings of settings under one name each, such as `agent.ppo.epochs`.

    >>> flat({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    found = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def written(value: Any) -> str:
    """A setting as it is typed."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return "" if value is None else str(value)


def code(text: str) -> str:
    """Text as code, in a cell of a table; nothing if it is empty."""
    return f"`{text}`".replace("|", r"\|") if text and text != "''" else ""


def paragraph(text: str) -> str:
    """Text on one line, with its `code` as it is and nothing else taken for markup."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part.replace("|", r"\|") if part.startswith("`") else kept(part) for part in parts).strip()


def kept(text: str) -> str:
    """Plain text escaped, with the spaces at its ends."""
    return re.sub(r"([\\|<*_\[\]])", r"\\\1", text)


if __name__ == "__main__":
    write_bytes(PAGE, page().encode())
    print(f"wrote {PAGE.name}")
