"""The `evarl` command: runs a sub-command, and turns every expected error into one line and an exit code.

0: done; 1: failed; 2: refused; 130: stopped by Ctrl-C; 143: stopped by SIGTERM.
"""

import importlib
import os
import sys

from evarl import stopping
from evarl.errors import EvarlError, FaultError, command_line, plain_text, unknown_name
from evarl.sizes import check_start
from evarl.storage.files import reason
from evarl.storage.modules import only_here

COMMANDS = {
    "train": "train a policy, with --beta an evaluable one, and write the run to a directory",
    "assess": "roll a policy through the assessment, and predict its deployment value from it",
    "evaluate": "compare the predictions of a run's evaluators with true values, beside every control",
    "video": "record episodes of a policy, as MP4 or GIF",
    "plot": "draw learning curves of runs",
    "animate": "draw how policies take their test and are deployed, on two sites of a family of worlds",
    "certify": "test a claim about a policy, and issue a certificate that holds for finite samples",
    "calibrate": "draw sites with hidden contexts, test and measure a policy there, for bounds on new sites",
    "compare": "test which of several policies reach a threshold, the most promising first",
    "verify": "check a certificate: its files, its numbers and its rollouts",
    "keygen": "make a key pair for signing certificates",
    "ope": "estimate the values of policies from logged trajectories of a run, or of a file: CSV, Parquet, NPZ, HDF5",
    "pretrain": "fit an evaluator to all policies of a run, to be frozen in another run",
    "reproduce": "run a study of the paper or our own: jobs, tables, figures, verdicts and a report",
    "worlds": "list the worlds with their spaces, horizon and discount",
}
"""Each command is a module of this folder with a function `run(arguments)`, which may return an exit code."""

ALIASES = {"study": "reproduce"}
"""Other names of commands."""

LIST = "\n".join(f"  {name:<9} {text}" for name, text in COMMANDS.items())
HELP = f"""Evaluation-aware reinforcement learning: train policies that are good and can be evaluated accurately.

usage: evarl COMMAND …    (evarl COMMAND --help lists the options)

{LIST}

example: evarl train navigation --beta 0.05 --seeds 4 --out runs/first && evarl evaluate runs/first"""


def main() -> None:
    """Entry point of the console script."""
    try:
        stopping.catch()
        code = call(sys.argv[1:])
    except stopping.Stopped as stopped:  # before the command has begun, or as its last line was printed
        code = stopped.exit_code
    stopping.leave(code)


def call(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP)
        return 0
    if arguments[0] == "--version":
        from importlib.metadata import version  # slow

        print(f"evarl {version('evarl')}")
        return 0
    try:
        command = ALIASES.get(arguments[0], arguments[0])
        if command not in COMMANDS:
            raise unknown_name("command", command, COMMANDS)
        check_start()
        with only_here(), command_line():
            return importlib.import_module(f"evarl.cli.{command}").run(arguments[1:]) or 0
    except EvarlError as error:
        print(f"evarl: {error}", file=sys.stderr)
        return 1 if isinstance(error, FaultError) else 2
    except BrokenPipeError:  # the reader of the output, such as `head`, has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as error:
        return _stopped(error)
    except Exception as error:
        if stopped := stopping.asked():  # a library has replaced the exception
            return _stopped(stopped)
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        print(f"evarl: out of memory ({reason(error)}); use smaller sizes", file=sys.stderr)
        return 1


def _stopped(error: KeyboardInterrupt) -> int:
    print(f"evarl: {plain_text(str(error))}" if str(error) else "evarl: stopped", file=sys.stderr)
    return error.exit_code if isinstance(error, stopping.Stopped) else 130
