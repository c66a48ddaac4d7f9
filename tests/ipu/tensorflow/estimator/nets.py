"""The suite's nets as model functions of TensorFlow 1, for estimators of IPUs, for stock ones and for pipelines."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Sequence

import numpy as np

from ipu_conformance import nets
from ipu_conformance.nets import INPUT, Layer
from ipu_conformance.run import RunConfig, learning_rate, optimizer

from ...training import data_of
from ..training.config import counted
from .programs import Estimators, spared


class Record(NamedTuple):
    """What a training leaves: the weights, and the mean loss of each loop."""

    weights: Dict[str, np.ndarray]
    losses: np.ndarray


def trained(estimators: Estimators, name: str, config: RunConfig) -> Record:
    """The training of a net, one loop for each update, or all updates of a pipeline in one loop; cases share it."""
    net = EstimatedNet(estimators, name, config)
    loop = net.steps if net.in_stages else config.gradient_accumulation
    record: Record = estimators.once((name, config), lambda: net.train(loop))
    return record


ADAM = {
    "optimizer": optimizer("adam", beta1=0.5, beta2=0.75, epsilon=1e-7, epsilon_at="uncorrected"),
    "learning_rate": learning_rate(base=0.0078125),
}
"""The Adam of TensorFlow 1; the decays, and one less them, are exact in float32."""


def estimated(iterations: int, accumulation: int, replicas: int, **changes: Any) -> RunConfig:
    """A configuration as an estimator trains it: TensorFlow 1's momentum, and the mean over replicas."""
    rules = {"optimizer": optimizer("sgd", momentum=0.5), "replica_reduction": "mean"}
    return counted(iterations, accumulation, replicas, **{**rules, **changes})


class EstimatedNet:
    """A net with the numbers of a configuration, to be trained by any kind of estimator."""

    def __init__(self, estimators: Estimators, name: str, config: RunConfig) -> None:
        self.estimators, self.tf, self.v1, self.ipu = estimators, estimators.tf, estimators.v1, estimators.ipu
        self.net, self.config = nets.NETS[name](), config

    @property
    def steps(self) -> int:
        """The steps of a replica."""
        return self.config.device_iterations * self.config.gradient_accumulation

    @property
    def in_stages(self) -> bool:
        """Whether the net is pipelined."""
        return self.config.number_of_stages > 1

    def estimator(self, loop: int) -> Any:
        """An IPUEstimator, or an IPUPipelineEstimator that cuts the net into the stages of the configuration."""
        if not self.in_stages:
            return self.estimators.make(self.model_fn, loop=loop, replicas=self.config.replicas)
        shards = 1 << (self.config.number_of_stages - 1).bit_length()
        return self.ipu.ipu_pipeline_estimator.IPUPipelineEstimator(
            model_fn=self.pipeline_fn,
            model_dir=self.estimators.folder(),
            config=self.estimators.config(loop, self.config.replicas, shards),
        )

    def train(self, loop: int) -> Record:
        """The record of a training with loops of so many steps."""
        estimator = self.estimator(loop)
        estimator.train(self.input_fn(self.config.micro_batch), steps=self.steps)
        return self.record(estimator)

    def predict(self) -> np.ndarray:
        """The logits of all samples."""
        estimator, batch = self.estimator(self.steps if self.in_stages else 2), self.config.micro_batch
        number = self.steps * self.config.replicas * batch
        return np.stack(list(estimator.predict(self.input_fn(batch), num_predictions=number)))

    def train_stock(self) -> Record:
        """The record of the stock estimator on the host, to which the micro-batches of an update are one batch."""
        together = self.config.gradient_accumulation * self.config.replicas
        config = self.tf.estimator.RunConfig(save_summary_steps=1, **spared(self.tf))
        estimator = self.tf.estimator.Estimator(self.stock_fn, self.estimators.folder(), config)
        estimator.train(self.input_fn(together * self.config.micro_batch), steps=self.config.device_iterations)
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
            computational_stages=[self.stage(number, mode) for number in range(self.config.number_of_stages)],
            gradient_accumulation_count=self.config.gradient_accumulation,
            optimizer_function=lambda loss: ops.OptimizerFunctionOutput(self.optimizer(accumulating=False), loss),
            pipeline_schedule=ops.PipelineSchedule[self.config.schedule.capitalize()],
            reduction_method=self.config.accumulation_reduction,
        )

    def stage(self, number: int, mode: str) -> Callable[..., Any]:
        """One stage of a net whose layers are a chain; the last returns the loss, or predicts the logits."""
        layers = [layer for layer, place in zip(self.net.layers, self.config.stages) if place == number]

        def function(features: Any, labels: Any) -> Any:
            value = self.applied(layers, {layers[0].inputs[0]: features})[layers[-1].name]
            if number < self.config.number_of_stages - 1:
                return value, labels
            return value if mode == self.estimators.modes.PREDICT else self.loss(value, labels)

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
        optimizers, optimizer = self.ipu.optimizers, self.plain()
        if self.config.replicas > 1:
            optimizer = optimizers.CrossReplicaOptimizer(optimizer)
        if accumulating and self.config.gradient_accumulation > 1:
            optimizer = optimizers.GradientAccumulationOptimizerV2(
                optimizer, self.config.gradient_accumulation, reduction_method=self.config.accumulation_reduction
            )
        return optimizer

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
