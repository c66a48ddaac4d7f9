"""IPUEstimator: the model function is the body of one loop on the device."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.compile import loops, scopes
from ipu_conformance.emulator.tensorflow.estimator import feeds, metrics, report
from ipu_conformance.emulator.tensorflow.estimator.base import BaseEstimator
from ipu_conformance.emulator.tensorflow.estimator.program import Call, Program, counting_steps
from ipu_conformance.emulator.tensorflow.estimator.run_config import EstimatorSpec, ModeKeys
from ipu_conformance.emulator.tensorflow.estimator.specs import IPUEstimatorSpec, of_model_fn
from ipu_conformance.emulator.tensorflow.refusals import estimator as refusals
from ipu_conformance.emulator.tensorflow.run import replicas
from ipu_conformance.emulator.tensorflow.run.outfeed import IPUOutfeedQueue
from ipu_conformance.ir.graph import Graph


class IPUEstimator(BaseEstimator):
    """Trains, evaluates and predicts with loops of ``iterations_per_loop`` calls of the model function."""

    def __init__(
        self,
        model_fn: Any,
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        warm_start_from: Any = None,
        train_batch_size: Optional[int] = None,
        eval_batch_size: Optional[int] = None,
        predict_batch_size: Optional[int] = None,
    ) -> None:
        super().__init__(model_fn, model_dir, config, params, warm_start_from)
        sizes = (train_batch_size, eval_batch_size, predict_batch_size)
        self._batch_sizes = {
            mode: self._of_replica(size)
            for mode, size in zip((ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT), sizes)
            if size is not None
        }

    def _of_replica(self, size: int) -> int:
        """The batch of one replica of a batch of all."""
        refusals.BATCH_SIZE(size=size, replicas=self._run.num_replicas)
        return size // self._run.num_replicas

    def _params_of(self, mode: str) -> Any:
        size = self._batch_sizes.get(mode)
        return self.params if size is None else {**self.params, "batch_size": size}

    def _program(self, call: Call) -> Program:
        return LoopProgram(call)


class LoopProgram(Program):
    """One iteration is one call of the model function's graph with one element of the infeed."""

    spec: IPUEstimatorSpec
    """What the model function returned for the first replica; its tensors belong to the loop."""
    scaffold: Any
    """What a stock EstimatorSpec asks of the session."""

    def train(self) -> Any:
        """Trains once per iteration; the loss is the mean over iterations and replicas."""
        outfeed = IPUOutfeedQueue(device_ordinal=self.run.ordinal)

        def body(spec: IPUEstimatorSpec) -> Any:
            trained = spec.train_op.op if isinstance(spec.train_op, tf.Tensor) else spec.train_op
            operations = [trained]
            if spec.host_call is not None:
                refusals.HOST_CALL_IN_LOOP(iterations=self.run.iterations_per_loop)
                if spec.host_call[1]:
                    operations.append(outfeed.enqueue(feeds.tensors_of(spec.host_call[1])))
            return operations

        def training_loop() -> Any:
            total = self._repeated(body)
            self.require_reduction()
            return self._mean(total)

        (loss,) = self.compiled(training_loop)
        return EstimatorSpec(
            mode=self.call.mode,
            loss=loss,
            train_op=counting_steps(self._called_on_host(loss, outfeed), self.run.iterations_per_loop),
            training_hooks=self.spec.training_hooks,
            scaffold=self.scaffold,
        )

    def evaluate(self) -> Any:
        """Evaluates once per iteration, with metrics of the device and of the host."""
        outfeed = IPUOutfeedQueue(device_ordinal=self.run.ordinal)
        on_device = metrics.DeviceMetrics()

        def body(spec: IPUEstimatorSpec) -> Any:
            refusals.NO_METRICS(on_host=spec.eval_metrics, on_device=spec.eval_metric_ops)
            refusals.METRICS(on_host=spec.eval_metrics, on_device=spec.eval_metric_ops)
            operations = on_device.updates(spec.eval_metric_ops)
            if spec.eval_metrics is not None:
                operations.append(outfeed.enqueue(feeds.tensors_of(spec.eval_metrics[1])))
            return operations

        def evaluation_loop() -> Any:
            total = self._repeated(body)
            return [self._mean(total), *(self.mean_of_replicas(value) for value in on_device.values())]

        loss, *values = self.compiled(evaluation_loop)
        found: Dict[str, Tuple[Any, Any]] = on_device.kept(values)
        if self.spec.eval_metrics is not None:
            function, _ = self.spec.eval_metrics
            found.update(feeds.passed(function, self._taken(loss, outfeed)))
        return EstimatorSpec(
            mode=self.call.mode,
            loss=loss,
            eval_metric_ops=found,
            evaluation_hooks=self.spec.evaluation_hooks,
            scaffold=self.scaffold,
        )

    def predict(self) -> Any:
        """Predicts once per iteration."""
        outfeed = IPUOutfeedQueue(device_ordinal=self.run.ordinal)

        def prediction_loop() -> Any:
            return loops.repeat(
                self.run.iterations_per_loop,
                lambda *element, **named: outfeed.enqueue(self._called(*element, **named).predictions),
                [],
                self.call.infeed,
            )

        ran = self.compiled(prediction_loop)
        return EstimatorSpec(
            mode=self.call.mode,
            predictions=self._dequeued(ran, outfeed),
            prediction_hooks=self.spec.prediction_hooks,
            scaffold=self.scaffold,
        )

    def forward(self, name: str) -> Graph:
        """What the loss, or the predictions, of the first replica are computed from."""
        predicting = self.call.mode == ModeKeys.PREDICT
        return report.forward(tf.nest.flatten(self.spec.predictions) if predicting else [self.spec.loss], name)

    def _called(self, *element: Any, **named: Any) -> IPUEstimatorSpec:
        features, labels = feeds.features_and_labels(*element, **named)
        with scopes.ipu_scope(self.run.device):
            returned = self.call.model_fn(features, labels if self._takes_labels else None)
        spec = of_model_fn(returned)
        if replicas.current() == 0:
            self.spec, self.scaffold = spec, getattr(returned, "scaffold", None)
        return spec

    @property
    def _takes_labels(self) -> bool:
        return self.call.mode != ModeKeys.PREDICT

    def _repeated(self, body: Callable[[IPUEstimatorSpec], Any]) -> Any:
        """The sum of the losses of one replica's iterations."""

        def iteration(total: Any, *element: Any, **named: Any) -> Any:
            spec = self._called(*element, **named)
            loss = tf.cast(tf.reshape(spec.loss, []), tf.float32)
            return [total + loss, *body(spec)]

        return loops.repeat(self.run.iterations_per_loop, iteration, [tf.constant(0.0)], self.call.infeed)

    def _mean(self, total: Any) -> Any:
        return self.mean_of_replicas(total / self.run.iterations_per_loop)

    def _taken(self, after: Any, outfeed: Any) -> Any:
        """What a loop has left: iterations first, then replicas if there are several."""
        with tf.control_dependencies([after]):
            return outfeed.dequeue()

    def _dequeued(self, after: Any, outfeed: Any) -> Any:
        return feeds.micro_batches(self._taken(after, outfeed), self.run.iterations_per_loop, self.run.num_replicas)

    def _called_on_host(self, loss: Any, outfeed: Any) -> Any:
        """The operation after which the loop, and what the host does with its tensors, is over."""
        if self.spec.host_call is None:
            return loss
        function, given = self.spec.host_call
        tensors = tf.nest.map_structure(self._of_replicas, self._dequeued(loss, outfeed)) if given else []
        returned = function(*tensors)
        refusals.HOST_CALL_RESULT(returned=returned, fits=isinstance(returned, (tf.Operation, tf.Tensor, tf.Variable)))
        return tf.group(loss, returned)

    def _of_replicas(self, leaf: Any) -> Any:
        """The mean over replicas of what each has left, or what the only one has."""
        return tf.reduce_mean(leaf, axis=0) if self.run.num_replicas > 1 else tf.squeeze(leaf, axis=0)
