"""How an estimator uses the IPUs, on the parts of stock ``tf.estimator``; TensorFlow 2.15 is the last with them."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.config.ipu_config import IPUConfig, IpuOptions
from ipu_conformance.emulator.tensorflow.refusals import estimator as refusals
from ipu_conformance.errors import ConformanceError


class EstimatorsUnavailable(ConformanceError, ImportError):  # noqa: N818 (it says what is)
    """This TensorFlow has no estimators."""


try:
    from tensorflow_estimator.python.estimator import estimator, mode_keys, model_fn, run_config
except ImportError as missing:
    import tensorflow

    raise EstimatorsUnavailable(
        f"TensorFlow {tensorflow.__version__} has no estimators: install TensorFlow 2.15, or use Keras."
    ) from missing

Estimator = estimator.EstimatorV2
EstimatorSpec = model_fn.EstimatorSpec
ModeKeys = mode_keys.ModeKeys
checks = model_fn
"""Stock's own checks of the parts of a spec."""


class _Fields(NamedTuple):
    """The settings of an IPURunConfig."""

    iterations_per_loop: int
    ipu_options: Any
    num_replicas: int
    num_shards: int
    ordinal: int
    prefetch_depth: Optional[int]


class IPURunConfig(_Fields):
    """The loop, the replicas and the shards of an estimator, and the configuration of its IPUs."""

    __slots__ = ()

    def __new__(
        cls,
        iterations_per_loop: int = 1,
        ipu_options: Any = None,
        num_replicas: int = 1,
        num_shards: int = 1,
        ordinal: int = 0,
        prefetch_depth: Optional[int] = None,
    ) -> IPURunConfig:
        """Refuses numbers that are not positive, and replicas and shards that are not the IPUs of the options."""
        made = super().__new__(cls, iterations_per_loop, ipu_options, num_replicas, num_shards, ordinal, prefetch_depth)
        for name, refusal in refusals.POSITIVE.items():
            value = getattr(made, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"`{name}` is {value!r}; it must be a whole number.")
            refusal(value=value)
        if isinstance(ordinal, bool) or not isinstance(ordinal, int) or ordinal < 0:
            raise ValueError(f"`ordinal` is {ordinal!r}; it must be the number of a device, counted from 0.")
        refusals.OPTIONS_MISSING(ipus=num_replicas * num_shards, options=ipu_options)
        if ipu_options is not None:
            made.check_ipus(configured(ipu_options, ordinal))
        return made

    def check_ipus(self, ipus: int) -> None:
        """Every IPU of the device has a replica and a shard."""
        refusals.IPUS(run=self, ipus=ipus)

    @property
    def device(self) -> str:
        """The device that the estimator runs on."""
        return f"/device:IPU:{self.ordinal}"


def configured(options: Any, ordinal: int) -> int:
    """How many IPUs the device of that number has when the options are in force."""
    refusals.OPTIONS_TYPE(options=options, kinds=(IPUConfig, IpuOptions))
    chosen, selected = _listed(options.auto_select_ipus), _listed(options.select_ipus)
    ids = system.ids()
    counts = [ids[identifier] for identifier in selected if 0 <= identifier < len(ids)] or chosen or [1]
    if ordinal >= len(counts):
        raise ValueError(f"`ordinal` is {ordinal}; `ipu_options` has {len(counts)} devices, counted from 0.")
    return counts[ordinal]


def _listed(numbers: Any) -> Any:
    return [numbers] if isinstance(numbers, int) else list(numbers)


class RunConfig(run_config.RunConfig):
    """Stock's configuration of an estimator, with an IPURunConfig."""

    def __init__(
        self, ipu_run_config: Optional[IPURunConfig] = None, master: Optional[str] = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if ipu_run_config is not None and not isinstance(ipu_run_config, IPURunConfig):
            raise ValueError(f"`ipu_run_config` is {ipu_run_config!r}; it must be an IPURunConfig.")
        self._ipu_run_config = ipu_run_config or IPURunConfig()
        if master is not None:
            self._master = master

    @property
    def ipu_run_config(self) -> IPURunConfig:
        """How the estimator uses the IPUs."""
        return self._ipu_run_config

    def replace(self, **kwargs: Any) -> RunConfig:
        """A copy with other settings; ``ipu_run_config`` may be among them."""
        own = {name: kwargs.pop(name) for name in ("ipu_run_config",) if name in kwargs}
        changed: RunConfig = super().replace(**kwargs)
        if own:
            changed._ipu_run_config = own["ipu_run_config"]
        return changed
