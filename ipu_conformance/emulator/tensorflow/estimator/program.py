"""What an estimator compiles for one call: the seam between stock's estimator and loops on the device."""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps_utils
from tensorflow.python.training import training_util

from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.tensorflow.compile import compiler, scopes, shards
from ipu_conformance.emulator.tensorflow.estimator import report
from ipu_conformance.emulator.tensorflow.estimator.run_config import IPURunConfig, ModeKeys
from ipu_conformance.emulator.tensorflow.refusals import estimator as refusals
from ipu_conformance.emulator.tensorflow.reports import folders
from ipu_conformance.emulator.tensorflow.run import collectives, replicas
from ipu_conformance.emulator.tensorflow.run.infeed import IPUInfeedQueue
from ipu_conformance.ir.graph import Graph


@dataclass(frozen=True)
class Call:
    """One call of train, evaluate or predict."""

    mode: str
    run: IPURunConfig
    infeed: IPUInfeedQueue
    model_fn: Callable[[Any, Any], Any]
    """The user's model function of features and labels, which knows its mode, params and config already."""


class Program(abc.ABC):
    """Builds one loop on the device for a call, in the graph of the host that is current.

    A session runs the loop once for each time that it runs the ``train_op``, the metrics' updates or the predictions.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.run = call.run
        self.built: Any = None
        """The program on the device, once it is compiled."""

    @abc.abstractmethod
    def train(self) -> Any:
        """A stock EstimatorSpec whose train_op is ``counting_steps`` of a loop, and whose loss is that of the loop."""

    @abc.abstractmethod
    def evaluate(self) -> Any:
        """A stock EstimatorSpec whose loss is that of a loop; stock adds up the losses and metrics of all loops."""

    @abc.abstractmethod
    def predict(self) -> Any:
        """A stock EstimatorSpec whose predictions have all micro-batches of a loop along a first axis."""

    def build(self) -> Any:
        """The spec of the call's mode."""
        builders: Dict[str, Callable[[], Any]] = {
            ModeKeys.TRAIN: self.train,
            ModeKeys.EVAL: self.evaluate,
            ModeKeys.PREDICT: self.predict,
        }
        return builders[self.call.mode]()

    def compiled(self, computation: Callable[[], Any]) -> Any:
        """What a computation returns, compiled for the device with the replicas and shards of the configuration."""
        step = tf.compat.v1.train.get_global_step()

        def program() -> Any:
            with shards.watched() as named:
                result = computation()
            shards.note(self.run.num_shards - 1)
            refusals.SHARDS(used=max(named, default=0) + 1, shards=self.run.num_shards)
            return result

        name = computation.__name__
        program.describe = lambda: folders.Program(  # type: ignore[attr-defined]
            name, self.planned(), lambda: self.forward(name), report.optimizer()
        )
        program.built_as = functools.partial(setattr, self, "built")  # type: ignore[attr-defined]
        before = len(tf.compat.v1.get_default_graph().get_operations())
        with scopes.ipu_scope(self.run.device):
            result = compiler.compile(program)
        _check_step_is_read_only(step, before)
        return result

    def planned(self) -> Plan:
        """The plan of the loop, for its report."""
        return report.planned(self.run, self.call.mode == ModeKeys.TRAIN)

    def forward(self, name: str) -> Graph:
        """The forward pass of one micro-batch for the report; it is asked for once the loop was built."""
        raise report.ForwardPassUnknown(f"the forward pass of {name} is not kept")

    def require_reduction(self) -> None:
        """Replicas that train must meet: call it inside the computation, once the model was built."""
        refusals.REDUCTION(replicas=replicas.count(), met=collectives.used())

    def mean_of_replicas(self, value: Any) -> Any:
        """The mean over replicas of a scalar; call it inside the computation."""
        if replicas.count() == 1:
            return value
        return collectives.all_reduce(value, collectives.MEAN)


def counting_steps(loop: Any, iterations: int) -> Any:
    """The operation that runs a loop and then counts its iterations as global steps."""
    step = tf.compat.v1.train.get_global_step()
    seen = training_util._get_or_create_global_step_read()
    # Who asks for the step in the same run, as stock's hooks do, always gets that of before.
    with tf.control_dependencies([loop, seen, step._graph_element]):
        return step.assign_add(tf.cast(iterations, step.dtype), read_value=False)


def _check_step_is_read_only(step: Optional[Any], before: int) -> None:
    if step is None:
        return
    for op in tf.compat.v1.get_default_graph().get_operations()[before:]:
        _, written = auto_control_deps_utils.get_read_write_resource_inputs(op)
        refusals.GLOBAL_STEP(step=step.handle, written=written)
