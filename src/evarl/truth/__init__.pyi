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
from .monte_carlo import Truth as Truth, mean_squared_error as mean_squared_error, true_values as true_values
