"""Tables and figures of the studies, written from their result files and never by hand."""

from pathlib import Path
from typing import Any

from evarl.errors import FileError
from evarl.stats import paired_difference
from evarl.storage.files import read_regular, write_atomically, write_bytes
from evarl.storage.plain import LONGEST, read_json, unseal
from evarl.studies.gradients import conditions
from evarl.studies.measure import summarise
from evarl.truth.exact import best_return
from evarl.worlds.navigation import Navigation


def read_results(folder: Path) -> dict[str, Any]:
    """Every result file of a folder, by the name of its condition or world."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        result = unseal(read_json(path), str(path))
        name = result.get("condition") or result.get("world")
        if not isinstance(name, str):
            raise FileError(f"{path}: is not the result of a study; move it away")
        found[name] = result
    return found


def gradients_table(results: dict[str, Any]) -> str:
    """Markdown: a row for each condition, mean ± standard error over seeds."""
    columns = {
        "return": "true_return",
        "start MAE": "start_mae",
        "visited MAE": "visited_mae",
        "start MAE, Ξ zeroed": "zeroed_start_mae",
        "start MAE, critic": "critic_start_mae",
        "visited MAE, critic": "critic_visited_mae",
        "skill": "skill",
    }
    lines = ["| condition | seeds | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 2) + "|"]
    for name in conditions(1):
        if name in results:
            numbers = summarise(results[name]["seeds"])
            cells = [_cell(*numbers[column]) for column in columns.values()]
            lines.append(f"| {name} | {len(results[name]['seeds'])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def differences_table(results: dict[str, Any]) -> str:
    """Markdown: each condition less its own β = 0, seed by seed, with 95 % t intervals; bold where 0 is outside."""
    lines = ["| condition | less | seeds | return | start MAE | visited MAE |", "| --- " * 6 + "|"]
    for name in conditions(1):
        baseline = _baseline(name)
        if name == baseline or name not in results or baseline not in results:
            continue
        one, other = ({row["seed"]: row for row in results[key]["seeds"]} for key in (name, baseline))
        seeds = sorted(one.keys() & other.keys())
        cells = []
        for column in ("true_return", "start_mae", "visited_mae"):
            found = paired_difference([one[s][column] for s in seeds], [other[s][column] for s in seeds])
            clear = "**" if found.t.low * found.t.high > 0 else ""
            cells.append(f"{clear}{found.mean:+.3f}{clear} ({found.t.low:+.3f} to {found.t.high:+.3f})")
        lines.append(f"| {name} | {baseline} | {len(seeds)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _baseline(name: str) -> str:
    """The condition without penalty that a condition is compared with."""
    if name.startswith("frozen"):
        return "frozen critic β=0.0"
    return "few passive β=0" if name.startswith("few") else "passive β=0"


def held_out_table(results: dict[str, Any]) -> str:
    """Markdown: a row for each world and kind of evaluator."""
    columns = {
        "with Ξ": "seeing",
        "Ξ shuffled": "shuffled",
        "blind": "blind",
        "a constant": "constant",
        "skill": "skill",
    }
    lines = ["| world | evaluator | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 2) + "|"]
    for world, result in results.items():
        for row in result["kinds"]:
            cells = [f"{row[column]:.2f}" for column in columns.values()]
            lines.append(f"| {world} | {row['kind']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def gradients_figure(results: dict[str, Any], path: Path) -> None:
    """How far the return falls short of the best possible, against evaluator error, one point for each condition."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    kinds = [
        "passive",
        "critic",
        "printed",
        "paired",
        "score",
        "ramped paired",
        "few passive",
        "few printed",
        "frozen critic",
    ]
    best = best_return(Navigation())
    for panel, column, label in ((panels[0], "start_mae", "start state"), (panels[1], "visited_mae", "visited states")):
        for number, kind in enumerate(kinds):
            points = []
            for name in conditions(1):
                if name in results and name.rsplit(" β=", 1)[0] == kind:
                    numbers = summarise(results[name]["seeds"])
                    mean, error = numbers["true_return"]
                    points.append((*numbers[column], best - mean, error, name.rsplit("β=", 1)[1]))
            for x, dx, y, dy, _ in points:
                panel.errorbar(x, y, xerr=dx, yerr=dy, color=f"C{number}", fmt="none", alpha=0.5)
            panel.plot([p[0] for p in points], [p[2] for p in points], "o-", color=f"C{number}", label=kind)
            for x, _, y, _, beta in points:
                panel.annotate(beta, (x, y), textcoords="offset points", xytext=(4, 4), fontsize=7)
        panel.set(xscale="log", yscale="log", xlabel=f"evaluator MAE, {label}")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel(f"return below the best possible ({best:.3f})")
    panels[1].legend(frameon=False, fontsize=8, title="gradient (β at the points)", title_fontsize=8)
    figure.tight_layout()
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=130))
    plt.close(figure)


def fill_page(path: Path, marks: dict[str, str]) -> None:
    """Replace what stands between `<!-- NAME -->` and `<!-- end NAME -->` in a page."""
    text = read_regular(path, LONGEST).decode(errors="surrogateescape")
    for name, content in marks.items():
        begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{content}\n{end}{after}"
    write_bytes(path, text.encode(errors="surrogateescape"))


def _cell(mean: float, error: float) -> str:
    return f"{mean:.3f} ± {error:.3f}"
