"""Keras optimizers whose state may have a dtype of its own; programs can name them, and making one is refused."""

from ipu_conformance.emulator.tensorflow.surface import unavailable_class as _unavailable_class

__all__ = ["AdamIpuOptimizer", "IpuOptimizerBase", "LAMBIpuOptimizer", "SGDIpuOptimizer"]

_WHY = "its update with state of another dtype is not emulated: use the optimizer of Keras"
IpuOptimizerBase = _unavailable_class("IpuOptimizerBase", _WHY)
AdamIpuOptimizer = _unavailable_class(
    "AdamIpuOptimizer",
    _WHY,
    "learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-07, amsgrad=False, name='Adam', m_dtype=None, "
    "v_dtype=None, vhat_dtype=None, debiasing=True, **kwargs",
)
SGDIpuOptimizer = _unavailable_class(
    "SGDIpuOptimizer",
    _WHY,
    "learning_rate=0.01, momentum=0.0, nesterov=False, name='SGD', momentum_accum_dtype=None, **kwargs",
)
LAMBIpuOptimizer = _unavailable_class("LAMBIpuOptimizer", _WHY)
