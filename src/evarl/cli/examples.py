"""Examples of every command, shown by its `--help`."""

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "train": (
        ("evarl train cartpole --seeds 4 --out runs/pole", "four seeds at once"),
        ("evarl train navigation --beta 0.05 --updates 400", "an evaluable policy"),
        ("evarl train minatar --world gymnax/Breakout-MinAtar", "another world with the same settings"),
        ("evarl train navigation --world gymnasium/CartPole-v1 --agent.algorithm ppo", "any Gymnasium environment"),
        ("evarl train cartpole --seeds 4 --out runs/pole --resume", "go on after Ctrl-C"),
    ),
    "assess": (
        ("evarl assess runs/first", "what the test predicts"),
        ("evarl assess runs/first --context bridge=0.15", "on one site of a family of worlds"),
        ("evarl assess runs/first --policy runs/other/policy/seed-0.safetensors", "another policy"),
    ),
    "evaluate": (
        ("evarl evaluate runs/first", "errors of the evaluator and of its controls"),
        ("evarl evaluate runs/first --passive runs/passive --seeds 0", "beside a run with β = 0"),
        ("evarl evaluate runs/first --ope", "with off-policy estimates"),
        ("evarl evaluate runs/first --policy-sb3 model.zip", "a model of Stable-Baselines3"),
    ),
    "video": (
        ("evarl video runs/first", "video.gif in the run"),
        ("evarl video runs/first --out pole.mp4 --episodes 3 --deterministic", "three episodes, likeliest actions"),
        ("evarl video runs/first --context bridge=0.15 --random --out site.gif", "on one site, beside random actions"),
    ),
    "plot": (
        ("evarl plot runs/first", "the learning curve, in the run"),
        ("evarl plot runs/a2c runs/ppo --labels A2C PPO --out curves.pdf", "two runs in one picture"),
        ("evarl plot runs/first --metric return evaluation_error --x updates --smooth 20", "two panels"),
    ),
    "animate": (
        ("evarl animate runs/first", "animation.gif in the run"),
        ("evarl animate runs/first --passive runs/passive --site bridge=0.15 --site bridge=0.9 --out both.gif", "both"),
    ),
    "certify": (
        ("evarl certify runs/first", "the best lower bound on the mean return"),
        ("evarl certify runs/first --threshold -9", "whether the mean return reaches -9"),
        ("evarl certify runs/first --claim single-episode --alpha 0.1", "what nine of ten episodes return"),
    ),
    "calibrate": (
        ("evarl calibrate runs/first --sites 100", "then: evarl certify runs/first --site bridge=0.15"),
        ("evarl calibrate runs/first --sites 50 --claim site-value", "bound the expected return"),
    ),
    "compare": (("evarl compare runs/first runs/second --threshold -9", "which of them reach -9"),),
    "verify": (
        ("evarl verify runs/first/certificates/CERTIFICATE.json", "derive it again and repeat its rollouts"),
        ("evarl verify CERTIFICATE.json --run runs/first --key issuer.pub", "with a signature"),
    ),
    "keygen": (("evarl keygen ~/.evarl-key", "then: evarl certify runs/first --sign ~/.evarl-key"),),
    "ope": (
        ("evarl ope runs/first", "every method (train with --log-megabytes 100)"),
        ("evarl ope runs/first --methods fqe dr --seeds 0", "two of them"),
    ),
    "pretrain": (("evarl pretrain runs/first --policies 50", "the evaluator of fifty of its policies"),),
    "reproduce": (
        ("evarl reproduce", "list the studies, run nothing"),
        ("evarl reproduce tabular --scale smoke", "see in a minute that it works"),
        ("evarl reproduce families --workers 2 --out runs/families", "hours on two cores"),
    ),
    "worlds": (
        ("evarl worlds", "all worlds"),
        ("evarl worlds gymnax/CartPole-v1", "what can be hidden and vary in one of them"),
    ),
}
"""Command lines of each command, and what each does."""


def examples(command: str) -> str:
    """The examples of a command as lines of its help.

    >>> examples("compare").splitlines()[1]
    '  evarl compare runs/first runs/second --threshold -9    which of them reach -9'
    """
    lines = EXAMPLES.get(command, ())
    width = max((len(line) for line, _ in lines), default=0)
    return "\n".join(["examples:", *(f"  {line:<{width}}    {text}" for line, text in lines)])
