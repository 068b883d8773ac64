"""The command line as a user meets it."""

import contextlib
import json
import re
import subprocess
import sys
from functools import partial

import pytest

from evarl import preset
from evarl.cli.examples import EXAMPLES
from evarl.cli.main import ALIASES, COMMANDS, call
from evarl.cli.train_help import FLAGS
from evarl.errors import EvarlError
from evarl.registry import Registry

TINY = ["--environments", "2", "--steps", "16", "--updates", "3", "--agent.hidden-sizes", "8"]


def evarl(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from evarl.cli.main import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def refused(capsys, tmp_path, *arguments: str) -> str:
    """The one line that a refused command prints; nothing may be written."""
    assert call(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert not list(tmp_path.iterdir()), "nothing is written"
    return err


def test_help_imports_nothing_slow():
    slow = ("jax", "brax", "mujoco", "matplotlib", "tensorboardX", "gymnax", "gymnasium", "pyarrow")
    script = (
        "import sys; from evarl.cli.main import call; call({}); print([m for m in "
        + repr(slow)
        + " if m in sys.modules])"
    )
    for arguments in (["--help"], ["train", "navigation", "--help"]):
        code = (
            script.format(arguments)
            .replace("call([", "\ntry: call([", 1)
            .replace("; print", "\nexcept SystemExit: pass\nprint")
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert result.stdout.splitlines()[-1] == "[]", result.stderr


def test_importing_the_package_imports_nothing_slow():
    code = "import sys, evarl; print([m for m in ('jax', 'brax', 'mujoco', 'matplotlib', 'tensorboardX') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_training_prints_where_the_results_are(tmp_path):
    result = evarl("train", "navigation", *TINY, "--out", str(tmp_path / "run"))
    assert result.returncode == 0, result.stderr
    assert f"results in {tmp_path / 'run'}" in result.stdout
    assert re.search(r"3/3 updates, [\d,]+ steps/s", result.stderr)


def test_json_is_the_last_line_and_the_only_thing_on_standard_output(tmp_path, capfd):
    assert call(["train", "navigation", *TINY, "--out", str(tmp_path / "run"), "--json"]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["run"] == str(tmp_path / "run")
    assert summary["updates"] == 3


def test_an_occupied_directory_is_refused(tmp_path, capsys):
    out = tmp_path / "run"
    assert call(["train", "navigation", *TINY, "--out", str(out), "--quiet"]) == 0
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    capsys.readouterr()
    assert call(["train", "navigation", *TINY, "--out", str(out)]) == 2
    assert "already holds a run; choose another directory, or resume it with --resume" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    assert call(["train", "navigation", *TINY, "--out", str(other)]) == 2
    assert "is not an empty directory" in capsys.readouterr().err
    assert [p.name for p in other.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "command: unknown 'trian'; did you mean 'train'?"),
        (["train", "navgation"], "preset: unknown 'navgation'; did you mean 'navigation'?"),
        (["train", "navigation", "--world", "gymnax/Asterix-MiniAtar"], "did you mean 'gymnax/Asterix-MinAtar'?"),
        (["train", "navigation", "--world", "brax/halfchetah"], "did you mean 'brax/halfcheetah'?"),
        (["train", "navigation", "--world", "gymnasium/CartPole-v9"], "did you mean 'gymnasium/CartPole-v1'?"),
        (["train", "navigation", "--seeds", "0"], "seeds: 0 is not allowed; must be at least 1"),
        (["train", "navigation", "--seeds", "two"], "seeds: 'two' is not allowed; must be a whole number"),
        (["train", "navigation", "--updates", "-5"], "updates: -5 is not allowed"),
        (["train", "navigation", "--environments", "0"], "environments: 0 is not allowed"),
        (["train", "navigation", "--steps", "0"], "steps: 0 is not allowed"),
        (["train", "navigation", "--horizon", "0"], "horizon: 0 is not allowed"),
        (["train", "navigation", "--discount", "1.5"], "discount: 1.5 is not allowed; must be a number from 0 to 1"),
        (
            ["train", "navigation", "--seed", "2147483647", "--seeds", "2"],
            "seeds 2147483647 to 2147483648 are not allowed",
        ),
        (["train", "navigation", "--seed", "-1"], "seeds -1 to -1 are not allowed"),
        (["train", "navigation", "--sedes", "3"], "--sedes: unknown option; did you mean --seeds?"),
        (["train", "navigation", "--update", "3"], "--update: unknown option; did you mean --updates?"),
        (
            ["train", "navigation", "--base-update", "3"],
            "--base-update: unknown option; did you mean --assessment.base-updates?",
        ),
        *(
            (
                ["train", "navigation", name, "3"],
                f"{name}: unknown option; training takes --updates × --environments × --steps, so set --updates",
            )
            for name in ("--timesteps", "--total-timesteps", "--total_timesteps")
        ),
        (["train", "navigation", "--beta", "x"], "beta: 'x' is not allowed; must be a number"),
        (["train", "navigation", "--horizon", "1.5"], "horizon: '1.5' is not allowed; must be a whole number"),
        (["train", "navigation", "--gradient", "criti"], "gradient: unknown 'criti'; did you mean 'critic'?"),
        (["train", "navigation", "--beta"], "beta: has no value"),
        (["train", "navigation", "more"], "'more' belongs to no option"),
        (["train", "--beta", "1"], "preset: is missing before --beta; must be one of crossing,"),
        (["certify", "a", "--range", "1"], "range: '1' is not allowed; must be two numbers"),
        (["pretrain"], "RUN: is missing; must be given: directory of a finished run"),
        (["reproduce", "--scale", "smoke"], "STUDY: is missing; must be given: name of the study"),
        (["video", "a", "--out", "a.avi"], "out: 'a.avi' is not allowed; must end in .gif or .mp4"),
        (["plot"], "runs: are missing; must be directories of runs"),
        (["plot", "a", "--out", "a.gif"], "out: 'a.gif' is not allowed; must end in .png, .svg, .pdf"),
        (["train", "navigation", "--agent.gae-lambda", "2"], "agent.gae-lambda: 2.0 is not allowed"),
        (
            ["train", "navigation", "--agent.actor-learning-rate", "nan"],
            "agent.actor-learning-rate: nan is not allowed",
        ),
        (["train", "navigation", "--agent.algorithm", "sac"], "agent.algorithm: unknown 'sac'"),
        (
            ["train", "navigation", "--agent.algorithm", "ppo", "--agent.ppo.minibatches", "7"],
            "7 does not divide the batch",
        ),
        (["train", "navigation", "--memory-gib", "0.0001", "--quiet"], "GiB are free; use fewer environments or steps"),
        (["train", "navigation", "--checkpoint-seconds", "0"], "checkpoint-seconds: 0.0 is not allowed"),
        (["train", "navigation", "--world", "tabular/nothing.npz"], "tabular/nothing.npz: cannot be read"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_bad_input_is_one_clear_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, tmp_path, *arguments)


def test_worlds_lists_spaces_horizon_and_discount():
    """Without importing what takes seconds; `tests/worlds/test_listed.py` compares the list with the libraries."""
    code = "import sys; from evarl.cli.main import call; call(['worlds']); print('jax' in sys.modules, 'gymnax' in sys.modules)"
    *table, slow = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.splitlines()
    assert slow == "False False"
    lines = {line.split()[0]: line for line in table if "/" in line or "navigation" in line}
    assert re.search(r"Box\(2, 0.0 to 1.0, float32\)\s+Discrete\(4\)\s+50\s+0.99", lines["navigation"])
    assert re.search(r"Box\(10×10×4, 0.0 to 1.0, bool\)\s+Discrete\(5\)\s+1000", lines["gymnax/Asterix-MinAtar"])
    assert {"tabular/chain", "brax/halfcheetah", "gymnasium/CartPole-v1"} <= lines.keys()


def test_worlds_lists_registered_ones(capsys, monkeypatch):
    from evarl.worlds import registry
    from evarl.worlds.navigation import Navigation

    monkeypatch.setattr(registry, "_own", Registry("world", {}))
    registry.register_world("listed-here", partial(Navigation, "listed-here", horizon=7))
    assert call(["worlds"]) == 0
    assert re.search(r"^ *listed-here .* 7 ", capsys.readouterr().out, flags=re.M)


def test_the_package_runs_as_a_module():
    found = subprocess.run([sys.executable, "-m", "evarl", "--version"], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, evarl("--version").stdout)
    refused = subprocess.run([sys.executable, "-m", "evarl", "trian"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.startswith("evarl: command: unknown 'trian'")


def test_version(capsys):
    assert call(["--version"]) == 0
    assert re.fullmatch(r"evarl \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["worlds", "--all"], "evarl: --all: unknown option; --help lists the options\n"),
        (
            ["assess", "a", "--samples", "x"],
            "evarl: samples: 'x' is not allowed; must be a whole number\n",
        ),
        (
            ["assess"],
            "evarl: RUN: is missing; must be given: directory of a finished run with an evaluator\n",
        ),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_errors_of_the_parser_have_no_title(arguments, line, encoding, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(type(sys.stdout), "encoding", encoding)  # boxes are drawn with the characters that there are
    assert refused(capsys, tmp_path, *arguments) == line


def test_the_papers_settings_are_one_flag_away(monkeypatch, capsys, tmp_path):
    class Trains(Exception):  # noqa: N818
        pass

    def train(config, **options):
        assert "paper" not in options
        raise Trains(config)

    monkeypatch.setattr("evarl.runs.train.train", train)
    with pytest.raises(Trains) as caught:
        call(["train", "minatar", "--paper", "--beta", "0.01", "--evaluator.network.width", "8"])
    (config,) = caught.value.args
    assert (config.evaluator.network.kind, config.gradient, config.evaluator.memory) == ("listing", "printed", "recent")
    assert config.evaluator.network.width == 8
    assert config.environments == 64
    fitted = [preset("navigation", paper=paper).evaluator for paper in (False, True)]
    assert [(one.steps, one.batch_size, one.final_steps) for one in fitted] == [(2, 256, 500), (5, 128, 0)]
    said = refused(capsys, tmp_path, "train", "crossing", "--paper")
    assert "crossing is not in the paper; must be one of navigation, minatar, brax" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_examples(command, capsys):
    with contextlib.suppress(SystemExit):
        call([command, "--help"])
    shown = capsys.readouterr().out
    assert EXAMPLES[command]
    for line, text in EXAMPLES[command]:
        assert line.startswith(f"evarl {command}")
        assert line in shown
        assert text in shown


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line, _ in lines if line != "evarl worlds"])
def test_examples_can_be_typed(line, capsys, monkeypatch, tmp_path):
    """They are parsed; whatever they would then open or start is not there."""

    class BeginsError(EvarlError):
        pass

    def begin(*arguments, **options):
        raise BeginsError("begins")

    monkeypatch.chdir(tmp_path)
    started = (
        "runs.train.train",
        "certificates.signing.new_key",
        "worlds.registry.make_world",
        "studies.schedule.run_jobs",
    )
    for name in started:
        monkeypatch.setattr(f"evarl.{name}", begin)
    monkeypatch.setattr("evarl.cli.reproduce.commit", lambda: None)  # no warning of changes
    code = call(line.split()[1:])
    out, error = capsys.readouterr()
    allowed = r"evarl: (begins|((runs/first/certificates/)?CERTIFICATE.json|runs/(first|a2c|passive)|model.zip): .*)\n"
    assert (code == 2 and re.fullmatch(allowed, error)) or "Results of the paper" in out, error
    assert not list(tmp_path.glob("*.gif"))


def test_the_help_of_train_is_short_and_true(capsys):
    """Presets and worlds first, then the flags most people need, with the values of the preset; all flags are one word away."""
    assert call(["train", "cartpole", "--help"]) == 0
    short = capsys.readouterr().out
    with pytest.raises(SystemExit):
        call(["train", "--help-all"])
    full = capsys.readouterr().out
    assert len(short.splitlines()) < 70
    assert max(map(len, short.splitlines())) < 130
    assert (
        short.index("presets:")
        < short.index("A world can stand in place")
        < short.index("examples:")
        < short.index("--world")
    )
    flags = [flag for group in FLAGS.values() for flag in group]
    assert 20 <= len(flags) <= 30
    for flag in flags:
        assert f"{flag} " in short or f"{flag}\n" in short
        assert re.search(rf"{re.escape(flag)}[ ,\n]", full), f"{flag} is no flag"
    assert re.search(r"--updates N +.*\(300\)", short)
    assert "--max-shift" in full
    assert "--max-shift" not in short


@pytest.mark.parametrize("name", ["reproduce", *(name for name, of in ALIASES.items() if of == "reproduce")])
def test_studies_are_listed_and_not_started(name, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert call([name]) == 0
    shown = capsys.readouterr().out
    assert "tabular     evaluation error" in shown
    assert "families    families of worlds" in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_curve_is_printed_on_a_terminal_only(tmp_path, capsys, monkeypatch):
    arguments = ["train", "navigation", *TINY, "--steps", "50", "--updates", "12", "--quiet"]
    assert call([*arguments, "--out", str(tmp_path / "plain")]) == 0
    assert "▁" not in capsys.readouterr().out
    monkeypatch.setattr("evarl.cli.train.draws_blocks", lambda: True)
    assert call([*arguments, "--out", str(tmp_path / "drawn")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "over the run" in line]
    assert re.fullmatch(r"over the run [▁▂▃▄▅▆▇█]{12} from -[\d.]+ to -[\d.]+", line)
