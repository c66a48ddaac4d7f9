"""The suite's nets as model functions of TensorFlow 1, for estimators of IPUs, for stock ones and for pipelines."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence

import numpy as np

from ipu_conformance import nets
from ipu_conformance.nets import INPUT, Layer
from ipu_conformance.run import RunConfig

from ...training import data_of
from .programs import Estimators


class Record(NamedTuple):
    """What a training leaves: the weights, and the mean loss of each loop."""

    weights: Dict[str, np.ndarray]
    losses: np.ndarray


class EstimatedNet:
    """A net with the numbers of a configuration, to be trained by any kind of estimator."""

    def __init__(self, estimators: Estimators, name: str, config: RunConfig) -> None:
        self.estimators, self.tf, self.v1, self.ipu = estimators, estimators.tf, estimators.v1, estimators.ipu
        self.net, self.config = nets.NETS[name](), config

    @property
    def steps(self) -> int:
        """The steps of a replica."""
        return self.config.device_iterations * self.config.gradient_accumulation

    def train(self, loop: Optional[int] = None) -> Record:
        """The record of an IPUEstimator; a loop is one update unless its steps are given."""
        loop = loop or self.config.gradient_accumulation
        estimator = self.estimators.make(self.model_fn, loop=loop, replicas=self.config.replicas)
        estimator.train(self.input_fn(self.config.micro_batch), steps=self.steps)
        return self.record(estimator)

    def predict(self) -> np.ndarray:
        """The logits of all samples, by an IPUEstimator."""
        estimator = self.estimators.make(self.model_fn, loop=2, replicas=self.config.replicas)
        number = self.steps * self.config.replicas * self.config.micro_batch
        return np.stack(list(estimator.predict(self.input_fn(self.config.micro_batch), num_predictions=number)))

    def train_stock(self) -> Record:
        """The record of the stock estimator on the host, to which the micro-batches of an update are one batch."""
        together = self.config.gradient_accumulation * self.config.replicas
        estimator = self.tf.estimator.Estimator(
            self.stock_fn, self.estimators.folder(), self.tf.estimator.RunConfig(save_summary_steps=1)
        )
        estimator.train(self.input_fn(together * self.config.micro_batch), steps=self.config.device_iterations)
        return self.record(estimator)

    def train_pipeline(self) -> Record:
        """The record of an IPUPipelineEstimator that cuts the net into the stages of the configuration."""
        run_config = self.ipu.ipu_run_config
        stages = self.config.number_of_stages
        chosen = run_config.IPURunConfig(
            iterations_per_loop=self.config.gradient_accumulation,
            ipu_options=self.estimators.options(stages * self.config.replicas),
            num_replicas=self.config.replicas,
            num_shards=stages,
        )
        estimator = self.ipu.ipu_pipeline_estimator.IPUPipelineEstimator(
            model_fn=self.pipeline_fn,
            model_dir=self.estimators.folder(),
            config=run_config.RunConfig(ipu_run_config=chosen, save_summary_steps=1, log_step_count_steps=None),
        )
        estimator.train(self.input_fn(self.config.micro_batch), steps=self.steps)
        return self.record(estimator)

    def record(self, estimator: Any) -> Record:
        """What an estimator has left in its folder."""
        weights = {weight.name: estimator.get_variable_value(weight.name) for weight in self.net.weights}
        losses = list(self.estimators.losses(estimator).values())
        return Record({name: np.asarray(value, np.float64) for name, value in weights.items()}, np.array(losses))

    def input_fn(self, batch: int) -> Callable[[], Any]:
        """The samples and labels of the first step of the run, channels last."""
        data = data_of(self.net.name, self.config)
        inputs = data.inputs[0] if len(self.net.input_shape) == 1 else np.moveaxis(data.inputs[0], -3, -1)
        rows = inputs.astype(np.float32), data.labels[0].astype(np.int32)
        return lambda: self.tf.data.Dataset.from_tensor_slices(rows).batch(batch, drop_remainder=True)

    def model_fn(self, features: Any, labels: Any, mode: str) -> Any:
        """The net for an IPUEstimator."""
        logits = self.logits(features)
        if mode == self.estimators.modes.PREDICT:
            return self.estimators.spec(mode, predictions=logits)
        loss = self.loss(logits, labels)
        train_op = self.optimizer(accumulating=True).minimize(loss) if mode == self.estimators.modes.TRAIN else None
        return self.estimators.spec(mode, loss=loss, train_op=train_op)

    def stock_fn(self, features: Any, labels: Any, mode: str) -> Any:
        """The net for the stock estimator, which counts its own steps; sums over micro-batches weigh the loss."""
        summed = self.config.accumulation_reduction == "sum"
        loss = self.loss(self.logits(features), labels)
        step = self.v1.train.get_global_step()
        weighted = loss * (self.config.gradient_accumulation if summed else 1)
        return self.tf.estimator.EstimatorSpec(mode, loss=loss, train_op=self.plain().minimize(weighted, step))

    def pipeline_fn(self, mode: str) -> Any:
        """The net for an IPUPipelineEstimator; labels pass all stages."""
        ops = self.ipu.pipelining_ops
        return self.ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(
            mode,
            computational_stages=[self.stage(number) for number in range(self.config.number_of_stages)],
            gradient_accumulation_count=self.config.gradient_accumulation,
            optimizer_function=lambda loss: ops.OptimizerFunctionOutput(self.optimizer(accumulating=False), loss),
            pipeline_schedule=ops.PipelineSchedule[self.config.schedule.capitalize()],
            reduction_method=self.config.accumulation_reduction,
        )

    def stage(self, number: int) -> Callable[..., Any]:
        """One stage of a net whose layers are a chain."""
        own = [layer for layer, place in zip(self.net.layers, self.config.stages) if place == number]

        def function(features: Any, labels: Any) -> Any:
            values = self.applied(own, {own[0].inputs[0]: features})
            if number < self.config.number_of_stages - 1:
                return values[own[-1].name], labels
            return self.loss(values[own[-1].name], labels)

        return function

    def logits(self, features: Any) -> Any:
        """The value of the last layer."""
        return self.applied(self.net.layers, {INPUT: features})[self.net.layers[-1].name]

    def loss(self, logits: Any, labels: Any) -> Any:
        """The mean cross entropy of a batch."""
        each = self.tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        return self.tf.reduce_mean(each)

    def plain(self) -> Any:
        """The optimizer of TensorFlow 1 with the rules of the configuration."""
        train, rule, rate = self.v1.train, self.config.optimizer, self.config.learning_rate["base"]
        if rule.name == "adam":
            return train.AdamOptimizer(rate, rule["beta1"], rule["beta2"], rule["epsilon"])
        return train.MomentumOptimizer(rate, rule["momentum"])

    def optimizer(self, accumulating: bool) -> Any:
        """The same, across replicas and micro-batches as the configuration says."""
        optimizers, made = self.ipu.optimizers, self.plain()
        if self.config.replicas > 1:
            made = optimizers.CrossReplicaOptimizer(made)
        if accumulating and self.config.gradient_accumulation > 1:
            made = optimizers.GradientAccumulationOptimizerV2(
                made, self.config.gradient_accumulation, reduction_method=self.config.accumulation_reduction
            )
        return made

    def applied(self, layers: Sequence[Layer], values: Dict[str, Any]) -> Dict[str, Any]:
        """The values of layers, by name, and of what they read."""
        for layer in layers:
            values[layer.name] = self.layer(layer, *(values[name] for name in layer.inputs))
        return values

    def layer(self, layer: Layer, *read: Any) -> Any:
        """The value of one layer."""
        tf, settings = self.tf, layer.attributes
        weights = [self.weight(name) for name in layer.weights]
        if layer.op == "linear":
            return tf.matmul(read[0], weights[0], transpose_b=True) + weights[1]
        if layer.op == "conv":
            return tf.nn.conv2d(read[0], tf.transpose(weights[0], (2, 3, 1, 0)), 1, "SAME") + weights[1]
        simple: Dict[str, Callable[[], Any]] = {
            "tanh": lambda: tf.tanh(read[0]),
            "relu": lambda: tf.nn.relu(read[0]),
            "add": lambda: tf.add(*read),
            "max_pool": lambda: tf.nn.max_pool2d(read[0], settings["kernel"], settings["stride"], "VALID"),
            "avg_pool": lambda: tf.nn.avg_pool2d(read[0], settings["kernel"], settings["stride"], "VALID"),
            "flatten": lambda: tf.reshape(tf.transpose(read[0], (0, 3, 1, 2)), (read[0].shape[0], -1)),
        }
        return simple[layer.op]()

    def weight(self, name: str) -> Any:
        """A weight with its initial value; layers that share it get the same."""
        start = self.net.initial_weights(self.config.seed)[name]
        with self.v1.variable_scope("", reuse=self.v1.AUTO_REUSE, use_resource=True):
            return self.v1.get_variable(name, start.shape, initializer=self.v1.constant_initializer(start))
