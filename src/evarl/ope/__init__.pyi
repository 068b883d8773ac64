from .cdf_model import KernelCDF as KernelCDF
from .cross_fitting import OwnModel as OwnModel
from .dataset import LoggedData as LoggedData
from .estimation import estimate as estimate, estimate_many as estimate_many
from .files import read as read
from .flat import MissingFinalObservation as MissingFinalObservation
from .guarantees import (
    GuaranteedBound as GuaranteedBound,
    GuaranteeSettings as GuaranteeSettings,
    guaranteed_lower_bound as guaranteed_lower_bound,
)
from .log import CollapsedWeights as CollapsedWeights, Estimate as Estimate, Log as Log
from .metrics import PolicyMetrics as PolicyMetrics, policy_metrics as policy_metrics
from .minari import from_minari as from_minari
from .outside import from_log_prob as from_log_prob, target_policy as target_policy, uniform_policy as uniform_policy
from .policy import TargetPolicy as TargetPolicy
from .ranking import PolicyRanking as PolicyRanking, rank_policies as rank_policies
from .registry import (
    Estimator as Estimator,
    LogSettings as LogSettings,
    estimators as estimators,
    register as register,
    unregister as unregister,
)
from .return_bands import BandSettings as BandSettings
from .returns import ReturnDistribution as ReturnDistribution, return_distribution as return_distribution
from .selection import SelectedEstimate as SelectedEstimate, select as select
from .settings import (
    DICEConfig as DICEConfig,
    FQEConfig as FQEConfig,
    MarginalConfig as MarginalConfig,
    Settings as Settings,
)
