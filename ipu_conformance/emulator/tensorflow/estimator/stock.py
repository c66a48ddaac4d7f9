"""The parts of stock ``tf.estimator`` that the emulated one is built from; TensorFlow 2.15 is the last with them."""

from __future__ import annotations

from ipu_conformance.errors import ConformanceError


class EstimatorsUnavailable(ConformanceError, ImportError):  # noqa: N818 (it says what is)
    """This TensorFlow has no estimators."""


try:
    from tensorflow_estimator.python.estimator import estimator, model_fn, run_config
    from tensorflow_estimator.python.estimator.mode_keys import ModeKeys
except ImportError as missing:
    import tensorflow

    raise EstimatorsUnavailable(
        f"TensorFlow {tensorflow.__version__} has no estimators: install TensorFlow 2.15, or use Keras."
    ) from missing

Estimator = estimator.EstimatorV2
EstimatorSpec = model_fn.EstimatorSpec
RunConfig = run_config.RunConfig
extract_metric_update_ops = estimator._extract_metric_update_ops

__all__ = [
    "Estimator",
    "EstimatorSpec",
    "EstimatorsUnavailable",
    "ModeKeys",
    "RunConfig",
    "extract_metric_update_ops",
    "model_fn",
]
