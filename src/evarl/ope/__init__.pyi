from .dataset import LoggedData as LoggedData
from .estimation import estimate as estimate
from .log import CollapsedWeights as CollapsedWeights, Estimate as Estimate, Log as Log
from .metrics import PolicyMetrics as PolicyMetrics, policy_metrics as policy_metrics
from .minari import from_minari as from_minari
from .policy import TargetPolicy as TargetPolicy
from .registry import (
    Estimator as Estimator,
    LogSettings as LogSettings,
    estimators as estimators,
    register as register,
    unregister as unregister,
)
from .settings import (
    DICEConfig as DICEConfig,
    FQEConfig as FQEConfig,
    MarginalConfig as MarginalConfig,
    Settings as Settings,
)
