"""IPUPipelineEstimator: one loop on the device is so many runs of a pipeline."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, Optional

import tensorflow as tf
from tensorflow.python.framework import errors_impl
from tensorflow.python.util import function_utils

from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.tensorflow.compile.pipeline import mapping_of, misfit, pipeline, schedule_of
from ipu_conformance.emulator.tensorflow.estimator import feeds, report
from ipu_conformance.emulator.tensorflow.estimator.base import BaseEstimator
from ipu_conformance.emulator.tensorflow.estimator.program import Call, Program, counting_steps
from ipu_conformance.emulator.tensorflow.estimator.run_config import EstimatorSpec, ModeKeys
from ipu_conformance.emulator.tensorflow.estimator.specs import IPUPipelineEstimatorSpec
from ipu_conformance.emulator.tensorflow.refusals import estimator as refusals
from ipu_conformance.emulator.tensorflow.run import replicas
from ipu_conformance.emulator.tensorflow.run.infeed import IPUInfeedQueue
from ipu_conformance.emulator.tensorflow.run.outfeed import IPUOutfeedQueue
from ipu_conformance.ir.graph import Graph

TAKEN = ("mode", "params", "config")
"""What a model function may ask for: features and labels go to the first stage."""
LOSS = "loss"


class IPUPipelineEstimator(BaseEstimator):
    """Trains, evaluates and predicts with loops in which a pipeline runs ``iterations_per_loop`` micro-batches."""

    def __init__(
        self, model_fn: Any, model_dir: Any = None, config: Any = None, params: Any = None, warm_start_from: Any = None
    ) -> None:
        super().__init__(_without_features(model_fn), model_dir, config, params, warm_start_from)

    def _program(self, call: Call) -> Program:
        return PipelineProgram(call)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        if not isinstance(features, IPUInfeedQueue):
            raise NotImplementedError(
                "A pipeline runs on IPUs only, and a SavedModel runs on the host: export an IPUEstimator, whose "
                "model_fn takes features."
            )
        return super()._call_model_fn(features, labels, mode, config)


def _without_features(model_fn: Any) -> Callable[..., Any]:
    """A model function as stock wants it, around one that takes no features."""
    if not callable(model_fn):
        raise ValueError(f"`model_fn` is {model_fn!r}; pass a function.")
    asked = function_utils.fn_args(model_fn)
    for name in asked:
        refusals.PIPELINE_ARGUMENT(name=name, taken=TAKEN)

    def called(features: Any, labels: Any = None, **known: Any) -> Any:
        return model_fn(**known)

    # Stock asks which arguments a model function has: it wants features, and params only if there are any.
    names = ("features", "labels", *(name for name in TAKEN if name in asked))
    signature = inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])
    called.__signature__ = signature  # type: ignore[attr-defined]
    return called


class PipelineProgram(Program):
    """An iteration is one micro-batch on its way through the pipeline."""

    spec: IPUPipelineEstimatorSpec
    """What the model function returned for the first replica."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._followed = report.FirstMicroBatch()

    def planned(self) -> Plan:
        """The plan of the loop, for its report."""
        return report.planned_pipeline(self.spec, self.run, self._training)

    def forward(self, name: str) -> Graph:
        """The forward pass of one micro-batch through all stages."""
        return self._followed.forward(name, len(self.spec.computational_stages))

    @property
    def _training(self) -> bool:
        return self.call.mode == ModeKeys.TRAIN

    def train(self) -> Any:
        """Updates once per run; the loss is the mean over the micro-batches of all runs and replicas."""
        outfeed = self._outfeed()

        def training_pipeline() -> Any:
            ran = self._pipeline(outfeed)
            self.require_reduction()
            return ran

        ran = self.compiled(training_pipeline)
        loss = self._mean_loss(tf.cast(self._dequeued(ran, outfeed), tf.float32))
        return EstimatorSpec(
            mode=self.call.mode,
            loss=loss,
            train_op=counting_steps(loss, self.run.iterations_per_loop),
            training_hooks=self.spec.training_hooks,
        )

    def _mean_loss(self, added: Any) -> Any:
        """The mean over micro-batches, of sums over each run and replica."""
        return tf.reduce_mean(added) / self.spec.gradient_accumulation_count

    def evaluate(self) -> Any:
        """The host computes the loss and the metrics from what the last stage returns for every micro-batch.

        A loss that is a list, as a stage's own loss comes back, counts with its mean.
        """
        metrics = self._metrics(self._left_by("evaluation_pipeline"))
        return EstimatorSpec(
            mode=self.call.mode,
            loss=tf.reduce_mean(metrics.pop(LOSS)),
            eval_metric_ops=metrics,
            evaluation_hooks=self.spec.evaluation_hooks,
        )

    def _metrics(self, outputs: Any) -> Dict[str, Any]:
        metrics = feeds.passed(self.spec.eval_metrics_fn, outputs)
        refusals.METRICS_TYPE(metrics=metrics, loss=LOSS)
        if LOSS not in metrics:
            raise KeyError(f"The eval_metrics_fn returned {sorted(metrics)}; its dictionary must contain {LOSS!r}.")
        return dict(metrics)

    def predict(self) -> Any:
        """What the last stage returns is the prediction."""
        outputs = self._outputs("prediction_pipeline")
        refusals.UNNAMED_PREDICTIONS(outputs=outputs)
        return EstimatorSpec(
            mode=self.call.mode,
            predictions=outputs if isinstance(outputs, dict) else outputs[0],
            prediction_hooks=self.spec.prediction_hooks,
        )

    def _outfeed(self) -> Any:
        return IPUOutfeedQueue(device_ordinal=self.run.ordinal)

    def _outputs(self, name: str) -> Any:
        """What the last stage returns for each micro-batch of a loop, in the order of the data: listed or named."""
        return feeds.micro_batches(self._left_by(name), self.run.iterations_per_loop, self.run.num_replicas)

    def _left_by(self, name: str) -> Any:
        """What a loop has left, listed or named: micro-batches first, then replicas if there are several."""
        outfeed = self._outfeed()

        def program() -> Any:
            return self._pipeline(outfeed)

        program.__name__ = name
        taken = self._dequeued(self.compiled(program), outfeed)
        return taken if isinstance(taken, (list, dict)) else [taken]

    def _dequeued(self, ran: Any, outfeed: Any) -> Any:
        """What a loop leaves; a pipeline whose count does not fit its schedule leaves nothing and fails."""
        if not outfeed.enqueued:
            raise errors_impl.FailedPreconditionError(None, None, self._misfit())
        with tf.control_dependencies([ran]):
            return outfeed.dequeue()

    def _misfit(self) -> Optional[str]:
        spec = self.spec
        return misfit(
            mapping_of(spec.computational_stages, spec.device_mapping),
            schedule_of(spec.pipeline_op_kwargs.get("pipeline_schedule")),
            spec.gradient_accumulation_count,
            self._training,
        )

    def _pipeline(self, outfeed: Any) -> Any:
        """The operation of one replica that is all runs of the pipeline in a loop."""
        spec = _of_model_fn(self.call.model_fn(None, None))
        ipus = spec.device_mapping if spec.device_mapping is not None else range(len(spec.computational_stages))
        refusals.IDLE_SHARDS(required=len(set(ipus)), shards=self.run.num_shards)
        if replicas.current() == 0:
            self.spec = spec
        optimizer_function = spec.optimizer_function if self._training else None
        return pipeline(
            self._stages(spec),
            gradient_accumulation_count=spec.gradient_accumulation_count,
            repeat_count=runs(self.run.iterations_per_loop, spec.gradient_accumulation_count),
            infeed_queue=self.call.infeed,
            outfeed_queue=outfeed,
            optimizer_function=optimizer_function and self._followed.optimized(optimizer_function),
            device_mapping=spec.device_mapping,
            outfeed_loss=self._training,
            accumulate_outfeed=self._training,
            accumulate_outfeed_dtype=spec.loss_accumulator_dtype,
            reduction_method=spec.reduction_method,
            **spec.pipeline_op_kwargs,
        )

    def _stages(self, spec: IPUPipelineEstimatorSpec) -> List[Callable[..., Any]]:
        return [self._followed.through(number, stage) for number, stage in enumerate(spec.computational_stages)]


def runs(iterations_per_loop: int, count: int) -> int:
    """How often a loop of so many iterations runs a pipeline of so many micro-batches."""
    refusals.LOOP(iterations=iterations_per_loop, count=count)
    return iterations_per_loop // count


def _of_model_fn(returned: Any) -> IPUPipelineEstimatorSpec:
    refusals.PIPELINE_SPEC(returned=returned, kind=IPUPipelineEstimatorSpec)
    spec: IPUPipelineEstimatorSpec = returned
    return spec
