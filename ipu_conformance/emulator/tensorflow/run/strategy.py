"""The emulated IPU strategies: a scope that marks models and variables, and ``run`` for compiled functions."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, List, Optional, Tuple

from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.distribute import distribute_lib
from tensorflow.python.eager import context
from tensorflow.python.framework import device_spec, ops

from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.refusals import ops as refusals
from ipu_conformance.emulator.tensorflow.run import replicas, strategy_run, variables
from ipu_conformance.errors import ConformanceError


class StrategyError(ConformanceError, NotImplementedError):
    """A strategy was asked for something that an IPU does not do."""


class IPUStrategyV1(distribute_lib.StrategyV1):
    """Runs models and functions on one IPU device; replicas are made of its IPUs when a program is compiled."""

    _collective_key_base = 0

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        cpu_device: str = "/device:CPU:0",
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        super().__init__(IPUExtendedV1(self, ipu_device, cpu_device))
        self.enable_dataset_iterators = enable_dataset_iterators
        self.enable_keras_extensions = enable_keras_extensions
        if enable_keras_extensions:
            # Keras is changed only for programs that make a strategy, and its emulated part imports this module.
            from ipu_conformance.emulator.tensorflow.keras import models

            models.install()

    @property
    def device_ordinal(self) -> int:
        """The number of the strategy's device."""
        return self.extended.device_ordinal

    @property
    def num_ipus(self) -> int:
        """The IPUs of the strategy's device; a system that is not configured is an error."""
        return system.ipus(self.device_ordinal)

    def run(
        self, fn: Callable[..., Any], args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None,
        options: Any = None,
    ) -> Any:  # fmt: skip
        """Run ``fn``, a ``tf.function`` or called inside of one, on every replica; the result is the first one's."""
        _require_compiled(fn)
        ipus = self.num_ipus if system.configured() and not replicas.inside() else 1
        run = super().run
        return strategy_run.run(
            lambda program, *own, **named: run(program, args=own, kwargs=named, options=options),
            fn, ipus, args, kwargs or {},
        )  # fmt: skip

    def experimental_run_v2(self, *args: Any, **kwargs: Any) -> Any:
        """The older name of ``run``."""
        return self.run(*args, **kwargs)

    @property
    def supports_loss_scaling(self) -> bool:
        """Whether optimizers that scale losses may be used: they may."""
        return True


IPUStrategy = IPUStrategyV1


def current() -> Optional[IPUStrategyV1]:
    """The IPU strategy whose scope is entered, None outside of one."""
    if not distribute_lib.has_strategy():
        return None
    strategy = distribute_lib.get_strategy()
    return strategy if isinstance(strategy, IPUStrategyV1) else None


def _require_compiled(fn: Callable[..., Any]) -> None:
    refusals.EAGER_FUNCTION(compiled=not context.executing_eagerly() or _is_compiled(fn))


def _is_compiled(fn: Callable[..., Any]) -> bool:
    """Whether calling ``fn`` executes a graph: it, or the method behind a callable object, is a ``tf.function``."""
    while hasattr(fn, "func"):  # functools.partial
        fn = fn.func
    return any(hasattr(item, "get_concrete_function") or hasattr(item, "structured_outputs") for item in _behind(fn))


def _behind(fn: Callable[..., Any]) -> List[Any]:
    return [fn, type(fn).__call__] if hasattr(type(fn), "__call__") else [fn]  # noqa: B004 (the method is wanted)


class IPUExtendedV1(distribute_lib._DefaultDistributionExtended):
    """What TensorFlow's strategies delegate to: stock's one worker, with variables that have a value for each replica.

    The default strategy of stock has the same variables and data sets of the host, but no scope and no devices.
    """

    _scope = distribute_lib.StrategyExtendedV1._scope
    colocate_vars_with = distribute_lib.StrategyExtendedV1.colocate_vars_with

    def __init__(self, container_strategy: IPUStrategyV1, ipu_device: str, cpu_device: str) -> None:
        super().__init__(container_strategy)
        self._ipu_device = ipu_device
        self._cpu_device = cpu_device
        self.device_ordinal = _ordinal(ipu_device)

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        with _colocated(kwargs.pop("colocate_with", None)):
            return variables.replicated(next_creator(**kwargs))

    def _validate_colocate_with_variable(self, colocate_with_variable: Any) -> None:
        """Any variable of one worker may be colocated with any other."""

    def variable_created_in_scope(self, v: Any) -> bool:
        return v._distribute_strategy is self._container_strategy()

    def _experimental_make_numpy_dataset(self, numpy_input: Any, session: Any) -> Any:
        with ops.device(self._cpu_device):
            return dataset_ops.DatasetV2.from_tensor_slices(numpy_input)

    def _broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        return tensor

    def non_slot_devices(self, var_list: Any) -> Tuple[str]:
        return (self._ipu_device,)

    @property
    def worker_devices(self) -> Tuple[str]:
        return (self._ipu_device,)

    parameter_devices = worker_devices

    @property
    def experimental_between_graph(self) -> bool:
        return False

    @property
    def experimental_should_init(self) -> bool:
        return True


def _colocated(with_variable: Any) -> ContextManager[Any]:
    if with_variable is None or isinstance(with_variable, str):
        return contextlib.nullcontext()
    return ops.colocate_with(with_variable)


def _ordinal(ipu_device: str) -> int:
    spec = device_spec.DeviceSpecV2.from_string(ipu_device)
    if spec.device_type != "IPU":
        raise ValueError(f"ipu_device is {ipu_device!r}; name an IPU device such as '/device:IPU:0'.")
    return int(spec.device_index or 0)
