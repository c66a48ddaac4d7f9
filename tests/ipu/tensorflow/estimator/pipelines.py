"""The chain of products behind a pipelined estimator, as a user writes it, and what the host sees of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance

from ..exact import START, Trained, counts, samples, trained
from .programs import Configured

SCHEDULES = ("Grouped", "Interleaved", "Sequential")


@dataclass(frozen=True)
class Chain:
    """A training: each stage multiplies by one weight, and the loss of a sample is the product."""

    number_of_stages: int = 2
    gradient_accumulation: int = 4
    device_iterations: int = 2
    """How often the pipeline runs in one loop on the device; each run ends with an update."""
    replicas: int = 1
    schedule: str = "Grouped"
    devices: Tuple[int, ...] = ()
    """The IPU of each stage; empty means one after the other."""
    accumulation_reduction: str = "sum"
    momentum: float = 0.0
    micro_batch: int = 1
    """The samples of a micro-batch, in evaluation and prediction."""
    recompute: bool = False

    @property
    def iterations(self) -> int:
        """The micro-batches of a replica in one loop."""
        return self.gradient_accumulation * self.device_iterations

    @property
    def shards(self) -> int:
        """The IPUs of a replica, which come in powers of two."""
        return 1 << max(self.devices or (self.number_of_stages - 1,)).bit_length()

    def expected(self, loops: int = 1) -> Trained:
        """What so many loops leave."""
        config = counts(
            loops * self.device_iterations,
            self.gradient_accumulation,
            self.replicas,
            momentum=self.momentum,
            accumulation_reduction="mean" if "mean" in self.accumulation_reduction else "sum",
        )
        return trained(self.number_of_stages, config)


@dataclass
class Seen:
    """What a training has left: the weights, and after each loop the loss and the global step."""

    weights: np.ndarray
    losses: List[float]
    steps: List[int]
    names: List[str]
    """The variables of the checkpoint."""
    folder: str


class Programs(Configured):
    """Pipelined estimators on one target; each has a folder of its own unless it is given one."""

    def trained(self, chain: Chain, loops: int = 1) -> Seen:
        """What the training of a chain leaves; cases share it."""
        seen: Seen = self.once((chain, loops), lambda: self.train(chain, loops))
        return seen

    def estimator(self, chain: Chain, model_dir: Optional[str] = None, model_fn: Any = None, **options: Any) -> Any:
        """An estimator of the chain, or of another model with its IPUs and the iterations of its loop on the device."""
        system = self.options(chain.shards * chain.replicas)
        system.allow_recompute = chain.recompute
        run = {"ipu_options": system, **options.pop("run", {})}
        changes = {"model_dir": model_dir or self.folder(), "save_summary_steps": 0}
        config = self.config(chain.iterations, chain.replicas, chain.shards, run, **changes)
        return self.ipu.ipu_pipeline_estimator.IPUPipelineEstimator(
            model_fn or self.model_fn(chain), config=config, **options
        )

    def stages(self, chain: Chain, mode: str) -> List[Callable[..., Any]]:
        """One function for each stage; in training the last returns the loss."""

        def stage(number: int) -> Callable[..., Any]:
            def function(x: Any) -> Any:
                product = x * self.weight(number)
                last = number == chain.number_of_stages - 1
                return self.tf.reduce_sum(product) if last and mode == "train" else product

            return function

        return [stage(number) for number in range(chain.number_of_stages)]

    def optimizer(self, chain: Chain) -> Any:
        """The optimizer of a chain; replicas train with the mean of their gradients."""
        plain = self.descent(chain.momentum)
        return self.ipu.optimizers.CrossReplicaOptimizer(plain) if chain.replicas > 1 else plain

    def optimizer_function(self, chain: Chain) -> Callable[[Any], Any]:
        """What a training makes of the loss."""
        return lambda loss: self.ipu.pipelining_ops.OptimizerFunctionOutput(self.optimizer(chain), loss)

    def metrics(self, products: Any) -> Dict[str, Any]:
        """The mean of all products as the loss, and the mean of their squares."""
        squares = self.v1.metrics.mean(self.tf.square(products))
        return {"loss": self.tf.reduce_mean(products), "squares": squares}

    def spec(self, mode: str, **settings: Any) -> Any:
        """The specification that a model function returns."""
        return self.ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(mode, **settings)

    def settings(self, chain: Chain, mode: str) -> Dict[str, Any]:
        """What a chain is specified by."""
        methods = self.ipu.gradient_accumulation.GradientAccumulationReductionMethod
        reduction = chain.accumulation_reduction.upper()
        return {
            "computational_stages": self.stages(chain, mode),
            "gradient_accumulation_count": chain.gradient_accumulation,
            "optimizer_function": self.optimizer_function(chain) if mode == "train" else None,
            "eval_metrics_fn": self.metrics if mode == "eval" else None,
            "device_mapping": list(chain.devices) or None,
            "pipeline_schedule": self.ipu.pipelining_ops.PipelineSchedule[chain.schedule],
            **({} if reduction == "UNASKED" else {"reduction_method": methods[reduction]}),
        }

    def model_fn(self, chain: Chain, **changes: Any) -> Callable[..., Any]:
        """The model function of a chain, with other settings in place of its own."""

        def model_fn(mode: str, params: Any) -> Any:
            return self.spec(mode, **{**self.settings(chain, mode), **changes})

        return model_fn

    def input_fn(self, values: Any, batch: int = 1) -> Callable[[], Any]:
        """A function that makes a data set of batches of the rows of an array, or of a structure of arrays."""
        return lambda: self.batches(values, batch)

    def fed(self, chain: Chain, loops: int = 1, skip: int = 0) -> Callable[[], Any]:
        """The samples of so many loops, after those that are skipped."""
        loop = chain.iterations * chain.replicas
        return self.input_fn(samples((skip + loops) * loop)[skip * loop :])

    def train(self, chain: Chain, loops: int = 1, estimator: Any = None, input_fn: Any = None, **changes: Any) -> Seen:
        """Train a chain and see what it leaves."""
        estimator = estimator or self.estimator(chain, model_fn=self.model_fn(chain, **changes))
        seeing = self.seeing()
        estimator.train(input_fn or self.fed(chain, loops), steps=loops * chain.iterations, hooks=[seeing])
        weights, names = self.weights(estimator, chain), estimator.get_variable_names()
        return Seen(weights, seeing.losses, seeing.steps, names, estimator.model_dir)

    def weights(self, estimator: Any, chain: Chain) -> np.ndarray:
        """The weights of the newest checkpoint."""
        return np.asarray(
            [estimator.get_variable_value(f"w{stage}") for stage in range(chain.number_of_stages)], np.float32
        )

    def evaluated(self, chain: Chain, loops: int = 1, estimator: Any = None, **changes: Any) -> Dict[str, Any]:
        """The metrics of so many loops."""
        estimator = estimator or self.estimator(chain, model_fn=self.model_fn(chain, **changes))
        number = loops * chain.iterations * chain.replicas * chain.micro_batch
        metrics: Dict[str, Any] = estimator.evaluate(
            self.input_fn(samples(number), chain.micro_batch), steps=loops * chain.iterations
        )
        return metrics

    def predicted(self, chain: Chain, number: int, **options: Any) -> List[Any]:
        """The first predictions of an estimator of the chain, or of the one that is given."""
        estimator = options.pop("estimator", None) or self.estimator(chain)
        input_fn = self.input_fn(samples(number), chain.micro_batch)
        return list(estimator.predict(input_fn, num_predictions=number, **options))


def needing(chains: Mapping[str, Any]) -> List[Any]:
    """Chains as parameters, each alone or with a number, with its id and the IPUs that it needs."""
    rows = {name: row if isinstance(row, tuple) else (row,) for name, row in chains.items()}
    return [
        pytest.param(*row, id=name, marks=pytest.mark.ipus(row[0].shards * row[0].replicas))
        for name, row in rows.items()
    ]


def check_chain(actual: Any, chain: Chain, loops: int = 1) -> None:
    """The weights of a chain are those of so many loops, bit by bit."""
    __tracebackhide__ = True
    check.identical(actual=actual, expected=chain.expected(loops).weights, what="the weights")


def flat(values: Sequence[Any]) -> np.ndarray:
    """Predictions one after the other."""
    return np.asarray(values, np.float32).reshape(-1)


def products(number: int, weights: Any = START[:2]) -> np.ndarray:
    """What the chain makes of so many samples."""
    return np.asarray(samples(number) * np.prod(np.asarray(weights, np.float32)), np.float32)


def check_mean(actual: Any, values: np.ndarray, what: str = "the loss", roundings: int = 4) -> None:
    """A number is the mean of values in float32: each is added once, with so many divisions and other roundings."""
    __tracebackhide__ = True
    exact = values.astype(np.float64)
    bound = (values.size + roundings) * FORMATS["float32"].unit * np.abs(exact).mean()
    allowed = Tolerance(np.asarray(bound), f"the mean of {values.size} values in float32", 0.0)
    check.close(actual=actual, expected=exact.mean(), tolerance=allowed, what=what)
