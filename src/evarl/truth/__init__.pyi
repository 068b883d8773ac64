from .controlled import (
    Controlled as Controlled,
    ControlSettings as ControlSettings,
    controlled_rollouts as controlled_rollouts,
)
from .exact import (
    action_values as action_values,
    best_return as best_return,
    optimal_values as optimal_values,
    policy_values as policy_values,
    reachable_mdp as reachable_mdp,
)
from .families import (
    BestError as BestError,
    BestEvaluator as BestEvaluator,
    bayes_error as bayes_error,
    best_evaluator as best_evaluator,
    context_grid as context_grid,
    context_values as context_values,
    return_distribution as return_distribution,
)
from .monte_carlo import Truth as Truth, mean_squared_error as mean_squared_error, true_values as true_values
from .sites import (
    action_probabilities as action_probabilities,
    exact_values as exact_values,
    is_finite as is_finite,
    measured_values as measured_values,
)
