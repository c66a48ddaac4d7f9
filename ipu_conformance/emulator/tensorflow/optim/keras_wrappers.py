"""The vendor's wrappers of Keras optimizers: they change gradients on their way, and work in ``fit``."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.keras import library
from ipu_conformance.emulator.tensorflow.optim import loss_scaling
from ipu_conformance.emulator.tensorflow.optim.wrappers import GradientFunction, Pairs, averaged, mapped
from ipu_conformance.emulator.tensorflow.run.accumulation import taken

After = List[Callable[[], Any]]
"""What wrappers do after an update."""

_OptimizerV2: Any = library.module("optimizers.legacy.optimizer_v2").OptimizerV2


def _of_wrapped(name: str, doc: str) -> Any:
    """A property that is read from, and set on, the wrapped optimizer."""
    return property(
        lambda self: getattr(self._opt, name), lambda self, value: setattr(self._opt, name, value), None, doc
    )


class IpuOptimizer(_OptimizerV2):
    """Hands gradients to the Keras optimizer that it wraps, which may be a wrapper itself.

    Gradients pass the wrappers from the outermost to the innermost, and the optimizer below them all applies them.
    """

    def __init__(self, opt: Any, name: Optional[str] = None, **kwargs: Any) -> None:
        if not isinstance(opt, library.optimizer_classes()):
            raise ValueError(f"`opt` is {opt!r} of type {type(opt).__name__}; pass a Keras optimizer.")
        super().__init__(name or type(self).__name__, **kwargs)
        self._opt = opt
        self._track_trackable(opt, "opt")

    @property
    def opt(self) -> Any:
        """The wrapped optimizer."""
        return self._opt

    def preprocess_gradients(self, grads_and_vars: Pairs) -> Pairs:
        """What this wrapper makes of gradients before they go on: nothing else."""
        return grads_and_vars

    def apply_gradients(
        self, grads_and_vars: Any, name: Optional[str] = None, experimental_aggregate_gradients: bool = True
    ) -> Any:
        """Change the gradients, apply them with the optimizer below, then do what wrappers do after an update."""
        pairs = list(grads_and_vars)
        with tf.init_scope():
            self._create_all_weights([variable for _, variable in pairs])
        pairs, after = self._passed(pairs)
        return self._applied(pairs, after)

    def _passed(self, pairs: Pairs) -> Tuple[Pairs, After]:
        """The gradients behind all wrappers from this one on, and what these do after an update."""
        pairs = self.preprocess_gradients(pairs)
        return self._opt._passed(pairs) if isinstance(self._opt, IpuOptimizer) else (pairs, [])

    def _applied(self, pairs: Pairs, after: After) -> Any:
        done = self._innermost().apply_gradients(taken(self._innermost(), pairs))
        with tf.control_dependencies([] if done is None else [done]):
            return tf.group([act() for act in reversed(after)])

    def _innermost(self) -> Any:
        return self._opt._innermost() if isinstance(self._opt, IpuOptimizer) else self._opt

    def _transform_loss(self, loss: Any) -> Any:
        return self._opt._transform_loss(loss) if isinstance(self._opt, IpuOptimizer) else loss

    # What Keras asks an optimizer for is asked of the wrapped one.

    def _create_all_weights(self, var_list: Sequence[Any]) -> None:
        inner = self._opt
        if hasattr(inner, "_create_all_weights"):
            inner._create_all_weights(var_list)
        elif not getattr(inner, "_built", False):
            inner.build(var_list)

    def _own_variables(self) -> List[Any]:
        """The variables of this wrapper itself."""
        return []

    def variables(self) -> List[Any]:
        """The variables of the wrapped optimizer, and then those of the wrapper."""
        found = self._opt.variables
        return [*(found() if callable(found) else found), *self._own_variables()]

    @property
    def weights(self) -> List[Any]:
        """The same variables."""
        return self.variables()

    iterations = _of_wrapped("iterations", "How many updates there were.")
    learning_rate = _of_wrapped("learning_rate", "The learning rate of the wrapped optimizer.")
    lr = _of_wrapped("learning_rate", "The learning rate under its short name.")

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """A slot of the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self) -> Any:
        """The names of the wrapped optimizer's slots; a later Keras has optimizers without slots."""
        return self._opt.get_slot_names() if hasattr(self._opt, "get_slot_names") else []

    def get_config(self) -> Dict[str, Any]:
        """What the wrapper, and what it wraps, can be made from again."""
        return {
            "inner_optimizer_config": self._opt.get_config(),
            "inner_optimizer_type": type(self._opt),
            "name": self._name,
        }

    @classmethod
    def from_config(cls: Type[Any], config: Dict[str, Any], custom_objects: Any = None) -> Any:
        """A wrapper of a new optimizer."""
        settings = dict(config)
        inner = settings.pop("inner_optimizer_type").from_config(settings.pop("inner_optimizer_config"))
        return cls(inner, **settings)


class CrossReplicaOptimizer(IpuOptimizer):
    """Takes the mean of every gradient over all replicas before it is applied."""

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name)

    def preprocess_gradients(self, grads_and_vars: Pairs) -> Pairs:
        """The means."""
        return averaged(grads_and_vars)


class MapGradientOptimizer(IpuOptimizer):
    """Applies ``function(gradient, variable)`` in place of every gradient."""

    def __init__(
        self, opt: Any, gradient_mapping_function: GradientFunction, name: str = "MapGradientOptimizer"
    ) -> None:
        super().__init__(opt, name)
        self._function = gradient_mapping_function

    def preprocess_gradients(self, grads_and_vars: Pairs) -> Pairs:
        """What the function makes of them."""
        return mapped(self._function, grads_and_vars)

    def get_config(self) -> Dict[str, Any]:
        """What the wrapper can be made from again, the function itself among it."""
        return {**super().get_config(), "gradient_mapping_function": self._function}


class ALSOptimizer(library.Configured, IpuOptimizer):
    """Multiplies the loss by a factor that it finds itself, and gradients by its inverse before they are applied."""

    CONFIG = (
        "initial_loss_scaling_factor",
        "update_frequency",
        "increase_factor",
        "max_loss_scaling_factor",
        "accumulate_statistics_over_update_period",
        "ratio_threshold",
        "captured_grads_only",
        "lpf_alpha",
        "histogram_bin_edge",
    )

    _scaling: loss_scaling.LossScaling
    __init__ = loss_scaling.keras_arguments(IpuOptimizer, "ALSOptimizer")

    loss_scaling_factor = loss_scaling.shown("factor", "The factor that the next loss is multiplied by.")
    initial_loss_scaling_factor = loss_scaling.shown("initial_factor", "The factor at the beginning.")
    max_loss_scaling_factor = loss_scaling.shown("max_factor", "The number that a factor stays below.")
    previous_loss_scaling_factor = loss_scaling.shown("previous", "The factor before it changed last.")
    increase_factor = loss_scaling.shown("increase_factor", "What the factor is multiplied or divided by.")
    histogram_bin_edge = loss_scaling.shown("bin_edge", "From where on an element counts as large.")
    histogram = loss_scaling.shown("histogram", "How many elements lie below the edge, and from it on.")
    captured_grads_only = loss_scaling.shown("captured_only", "Whether captured gradients alone are counted.")
    lpf_alpha = loss_scaling.shown("lpf_alpha", "The share of a histogram that an update keeps as it was.")
    supports_captured_grads = True
    update_frequency = loss_scaling.shown("update_frequency", "After how many updates the factor may change.")
    update_counter = loss_scaling.shown("steps", "How many updates there were since the factor might have changed.")
    ratio_threshold = loss_scaling.shown("ratio_threshold", "The share of large elements that shrinks the factor.")
    accumulate_statistics_over_update_period = loss_scaling.shown(
        "accumulate", "Whether all updates count, or the last one before a change."
    )

    @property
    def decrease_factor(self) -> Any:
        """What a factor that is too large is multiplied by."""
        return 1.0 / self.increase_factor

    @property
    def normalized_histogram(self) -> Any:
        """The histogram as shares of all elements."""
        return tf.math.divide_no_nan(self.histogram, tf.reduce_sum(self.histogram))

    def get_name(self) -> str:
        """The name of the wrapper."""
        return str(self._name)

    def get_gradients(self, loss: Any, params: Any) -> Any:
        """The gradients of the scaled loss."""
        return tf.gradients(self.get_scaled_loss(loss), params)

    def get_scaled_loss(self, loss: Any) -> Any:
        """The loss whose gradients ``apply_gradients`` takes; ``minimize`` and ``fit`` scale by themselves."""
        return self._scaling.scaled(loss)

    def get_unscaled_gradients(self, grads: List[Any]) -> List[Any]:
        """The gradients of the loss itself from those of the scaled loss."""
        factor = self._scaling.factor.read_value()
        return [self._scaling.unscaled(gradient, factor) for gradient in grads]

    def reset(self) -> None:
        """Begin again with the first factor."""
        self._scaling.reset()

    def apply_gradients(  # type: ignore[override]  # the vendor has put captured gradients before the name
        self,
        grads_and_vars: Any,
        captured_grads: Any = None,
        global_step: Any = None,
        name: Optional[str] = None,
    ) -> Any:
        """Update the variables with gradients of the loss itself, and then the factor, which counts all gradients."""
        self._captured = captured_grads
        return super().apply_gradients(grads_and_vars, name)

    _captured: Any = None
    """The gradients of activations that the update was given."""

    def _transform_loss(self, loss: Any) -> Any:
        return super()._transform_loss(self.get_scaled_loss(loss))

    def _passed(self, pairs: Pairs) -> Tuple[Pairs, After]:
        scaled = [gradient if gradient is None else tf.convert_to_tensor(gradient) for gradient, _ in pairs]
        unscaled = self.get_unscaled_gradients(scaled)
        passed, after = super()._passed([(gradient, variable) for gradient, (_, variable) in zip(unscaled, pairs)])
        captured, self._captured = self._captured, None
        return passed, [lambda: self._scaling.adapted(scaled, captured), *after]

    def _own_variables(self) -> List[Any]:
        return self._scaling.variables
