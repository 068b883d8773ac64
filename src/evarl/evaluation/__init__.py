"""Accuracy of predictions: evaluators, critics, controls and off-policy estimates against true values.

The functions `assess` and `evaluate` of this folder are `evarl.assess` and `evarl.evaluate`.

>>> from evarl import evaluation
>>> evaluation.EVALUATOR in evaluation.ORDER
True
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
