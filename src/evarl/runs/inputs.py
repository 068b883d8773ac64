"""The assessment and the frozen evaluator that a run starts with: built, or read from files and from other runs."""

from collections.abc import Callable
from pathlib import Path

from evarl.assessment.assessment import Assessment
from evarl.errors import InputError
from evarl.evaluators.evaluator import LearntEvaluator
from evarl.learning.base_policies import BasePolicy, build_assessment
from evarl.learning.configuration import TrainConfig
from evarl.runs.assessments import ASSESSMENT, load_assessment, load_evaluator
from evarl.runs.run import Run

Say = Callable[[str], None]


def new_assessment(config: TrainConfig, say: Say) -> Assessment:
    """The assessment of a new run, from `assessment.file` or built; `say` is called before a base policy is trained."""
    wanted = config.assessment
    if wanted.file is not None:
        return load_assessment(Path(wanted.file), named=(config.world, wanted.world))
    return build_assessment(config, say, None if wanted.base_run is None else _base_policy(config, wanted.base_run))


def starting_point(config: TrainConfig, run: Path | None, say: Say) -> tuple[Assessment | None, LearntEvaluator | None]:
    """The assessment of an evaluation-aware run, read from its directory `run` on resume, and its frozen evaluator."""
    if config.evaluator_mode == "none":
        return None, None
    named = (config.world, config.assessment.world)
    assessment = new_assessment(config, say) if run is None else load_assessment(run / ASSESSMENT, named=named)
    file = config.evaluator.file
    if file is None:
        return assessment, None
    frozen = load_evaluator(Path(file), config, assessment)
    if frozen.state.steps() == 0:
        raise InputError(
            f"evaluator.file: {file} was not fitted; train its run for more updates than its warm-up, or use `evarl pretrain`"
        )
    return assessment, frozen


def _base_policy(config: TrainConfig, path: str) -> BasePolicy:
    """The first seed's policy of a base run; a run of another world is refused, whether or not it would be used."""
    run = Run.load(path)
    if run.config.world != config.world:
        raise InputError(f"assessment.base-run: {run.path} was trained in {run.config.world}, not in {config.world}")
    return run.learner.agent, run.policy_state()
