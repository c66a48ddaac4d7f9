"""Estimators of one weight whose arithmetic has no rounding, each with a folder of its own.

The loss of an element x is x·w0, as in ``exact``: what an estimator leaves compares bit by bit with a plain loop.
"""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Union

import numpy as np

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ..exact import RATE, START, check_weight, counts, samples

LOSS, WEIGHT = "loss", "w0"


def unwrapped(optimizer: Any) -> Any:
    """The optimizer itself."""
    return optimizer


def spared(tf: Any) -> Dict[str, Any]:
    """Settings of stock's configuration that spare the host work which no case looks at.

    Programs this small take longer to optimize than to run, and so does a text of their graph beside each checkpoint.
    """
    session = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    session.graph_options.rewrite_options.disable_meta_optimizer = True
    session.graph_options.optimizer_options.opt_level = -1
    name = "checkpoint_save_graph_def"  # not every version has it
    return {"session_config": session, **({name: False} if hasattr(tf.estimator.RunConfig, name) else {})}


class Trained(NamedTuple):
    """What a training leaves, and what a hook has seen of it."""

    weight: np.ndarray
    losses: Dict[int, float]
    """The loss of each loop by its global step."""
    step: int
    """The last global step."""
    calls: Sequence[str] = ()
    """The calls of the hook."""
    steps: Sequence[int] = ()
    """The global step after each run that the hook has seen."""
    folder: str = ""
    """Where the checkpoints are."""


class Configured:
    """Makes configurations and folders for estimators, and keeps the runs that cases share."""

    def __init__(self, folder: Path) -> None:
        self.tf: Any = importlib.import_module("tensorflow")
        self.ipu: Any = importlib.import_module("tensorflow.python.ipu")
        self.v1 = self.tf.compat.v1
        self.modes = self.tf.estimator.ModeKeys
        self._folder, self._numbers = folder, itertools.count()
        self._records: Dict[Any, Any] = {}

    def once(self, key: Any, run: Callable[[], Any]) -> Any:
        """What a run gives; the cases that ask for the same run share it."""
        if key not in self._records:
            self._records[key] = run()
        return self._records[key]

    def options(self, ipus: Any = 1) -> Any:
        """Options for devices of so many IPUs."""
        options = self.ipu.config.IPUConfig()
        options.auto_select_ipus = ipus
        return options

    def config(self, loop: int = 2, replicas: int = 1, shards: int = 1, run: Any = None, **changes: Any) -> Any:
        """A run configuration on as many IPUs as it needs.

        ``run`` holds other fields of the IPU's part, ``changes`` those of the stock configuration.
        """
        fields = {
            "iterations_per_loop": loop,
            "ipu_options": self.options(replicas * shards),
            "num_replicas": replicas,
            "num_shards": shards,
            **(run or {}),
        }
        settings = {"save_summary_steps": 1, "log_step_count_steps": None, **spared(self.tf), **changes}
        return self.ipu.ipu_run_config.RunConfig(
            ipu_run_config=self.ipu.ipu_run_config.IPURunConfig(**fields), **settings
        )

    def folder(self) -> str:
        """The name of a folder that does not exist."""
        return str(self._folder / str(next(self._numbers)))

    def descent(self, momentum: float = 0.0) -> Any:
        """Gradient descent with the rate of ``exact``."""
        train = self.v1.train
        return train.MomentumOptimizer(RATE, momentum) if momentum else train.GradientDescentOptimizer(RATE)

    def batches(self, values: Any, batch: int = 1) -> Any:
        """A data set of full batches of the rows of an array, or of a structure of arrays."""
        return self.tf.data.Dataset.from_tensor_slices(values).batch(batch, drop_remainder=True)

    def weight(self, number: int = 0, start: Optional[float] = None) -> Any:
        """A weight of the graph that is being built."""
        initial = self.v1.constant_initializer(START[number] if start is None else start)
        return self.v1.get_variable(f"w{number}", [], self.tf.float32, initial, use_resource=True)

    def seeing(self, limit: Optional[int] = None) -> Any:
        """A hook that notes when it is called and, after every run, the loss and the step; it may ask for an end."""
        v1 = self.v1

        class Seeing(v1.train.SessionRunHook):  # type: ignore[name-defined]
            def __init__(self) -> None:
                self.calls: List[str] = []
                self.losses: List[float] = []
                self.steps: List[int] = []

            def begin(self) -> None:
                self.calls.append("begin")
                self.loss = v1.get_collection(v1.GraphKeys.LOSSES)[-1:]
                self.global_step = v1.train.get_global_step()

            def after_create_session(self, session: Any, coord: Any) -> None:
                self.calls.append("created")

            def before_run(self, run_context: Any) -> Any:
                self.calls.append("before")
                return v1.train.SessionRunArgs(self.loss)

            def after_run(self, run_context: Any, run_values: Any) -> None:
                self.calls.append("after")
                self.losses += run_values.results
                self.steps.append(int(run_context.session.run(self.global_step)))
                if len(self.steps) == limit:
                    run_context.request_stop()

            def end(self, session: Any) -> None:
                self.calls.append("end")

        return Seeing()


class Estimators(Configured):
    """Makes estimators, and reads what they leave in their folders."""

    def make(
        self,
        model_fn: Optional[Callable[..., Any]] = None,
        *,
        folder: Union[None, str, Path] = None,
        config: Any = None,
        params: Any = None,
        warm_start_from: Any = None,
        **settings: Any,
    ) -> Any:
        """An estimator; without a folder it begins from scratch, ``settings`` are those of ``config``."""
        return self.ipu.ipu_estimator.IPUEstimator(
            model_fn=model_fn or self.product(replicas=settings.get("replicas", 1)),
            model_dir=str(folder or self.folder()),
            config=config or self.config(**settings),
            params=params,
            warm_start_from=warm_start_from,
        )

    def after(self, steps: int, *model_fn: Any, **settings: Any) -> Any:
        """An estimator, made as ``make`` does, that has trained so many steps."""
        estimator = self.make(*model_fn, **settings)
        estimator.train(self.feed(steps * settings.get("replicas", 1)), steps=steps)
        return estimator

    def loss(self, features: Any) -> Any:
        """The sum of the products of a batch with the weight."""
        return self.tf.reduce_sum(self.weight() * features)

    def spec(self, mode: str, **fields: Any) -> Any:
        """What a model function returns; an evaluation always has metrics, if only of a function that finds none."""
        if mode == self.modes.EVAL and "loss" in fields and "eval_metric_ops" not in fields:
            fields.setdefault("eval_metrics", (lambda loss: {}, [fields["loss"]]))
        return self.ipu.ipu_estimator.IPUEstimatorSpec(mode, **fields)

    def product(
        self,
        wrap: Optional[Callable[[Any], Any]] = None,
        *,
        replicas: int = 1,
        momentum: float = 0.0,
        start: float = START[0],
        also: Callable[..., Dict[str, Any]] = lambda mode, features, products: {},
    ) -> Callable[..., Any]:
        """A model function of the weight; ``also`` gives more fields of what it returns."""
        wrap = wrap or (self.ipu.optimizers.CrossReplicaOptimizer if replicas > 1 else unwrapped)

        def model_fn(features: Any, mode: str) -> Any:
            products = self.weight(start=start) * features
            fields: Dict[str, Any] = {}
            if mode == self.modes.PREDICT:
                fields["predictions"] = {"product": products, "input": features}
            else:
                fields["loss"] = self.tf.reduce_sum(products)
            if mode == self.modes.TRAIN:
                fields["train_op"] = wrap(self.descent(momentum)).minimize(fields["loss"])
            return self.spec(mode, **{**fields, **also(mode, features, products)})

        return model_fn

    def trains(
        self,
        loss: Optional[Callable[[Any], Any]] = None,
        train: Optional[Callable[[Any], Any]] = None,
        **fields: Any,
    ) -> Callable[..., Any]:
        """A model function of a loss of the features, by default ours, and of what trains, by default descent."""

        def model_fn(features: Any, mode: str) -> Any:
            value = (loss or self.loss)(features)
            train_op = (train or self.descent().minimize)(value) if mode == self.modes.TRAIN else None
            return self.spec(mode, loss=value, train_op=train_op, **fields)

        return model_fn

    def predicts(self, predictions: Callable[..., Any]) -> Callable[..., Any]:
        """A model function that makes predictions of the features."""
        return lambda features, mode: self.spec(mode, predictions=predictions(features))

    def slices(self, *rows: Any) -> Callable[[], Any]:
        """An input function of the rows of some arrays, one at a time."""
        return lambda: self.tf.data.Dataset.from_tensor_slices(rows if len(rows) > 1 else rows[0])

    def feed(self, number: int, batch: int = 1, skip: int = 0, repeat: bool = False) -> Callable[[], Any]:
        """An input function of so many batches of ``samples``, after those that are skipped."""
        values = samples((skip + number) * batch)[skip * batch :]

        def input_fn() -> Any:
            fed = self.batches(values, batch)
            return fed.repeat() if repeat else fed

        return input_fn

    def call(self, estimator: Any, mode: str, input_fn: Callable[..., Any], steps: int, **settings: Any) -> Any:
        """What an estimator returns when it trains or evaluates so many steps, or the list of so many predictions."""
        if mode == "predict":
            return list(estimator.predict(input_fn, num_predictions=steps, **settings))
        return getattr(estimator, mode)(input_fn, steps=steps, **settings)

    def train(self, steps: int, *, replicas: int = 1, **settings: Any) -> Trained:
        """What an estimator leaves that trains so many steps from the beginning."""
        estimator, seeing = self.make(replicas=replicas, **settings), self.seeing()
        estimator.train(self.feed(steps * replicas), steps=steps, hooks=[seeing])
        return self.left(estimator)._replace(calls=seeing.calls, steps=seeing.steps)

    def trained(self, steps: int, loop: int, replicas: int = 1) -> Trained:
        """The same, for cases that share the training."""
        left: Trained = self.once((steps, loop, replicas), lambda: self.train(steps, loop=loop, replicas=replicas))
        return left

    def left(self, estimator: Any) -> Trained:
        """What the last training of an estimator left."""
        return Trained(
            estimator.get_variable_value(WEIGHT),
            self.losses(estimator),
            int(estimator.get_variable_value("global_step")),
            folder=estimator.model_dir,
        )

    def check_left(
        self, estimator: Any, step: int, config: Optional[RunConfig] = None, start: float = START[0]
    ) -> None:
        """The last checkpoint has this global step and the weight of a training, which has an update in every step."""
        __tracebackhide__ = True
        check.equal(actual=int(estimator.get_variable_value("global_step")), expected=step, what="the global step")
        check_weight(estimator.get_variable_value(WEIGHT), config or counts(step), start)

    def losses(self, estimator: Any) -> Dict[int, float]:
        """The loss of each loop that an estimator has trained, by its global step."""
        return self.summaries(Path(estimator.model_dir)).get(LOSS, {})

    def summaries(self, folder: Path) -> Dict[str, Dict[int, float]]:
        """Every value of the event files in a folder, by tag and step."""
        values: Dict[str, Dict[int, float]] = {}
        for file in sorted(folder.glob("events.out.tfevents.*")):
            for record in self.tf.data.TFRecordDataset(str(file)):
                event = self.v1.Event.FromString(record.numpy())
                for value in event.summary.value:
                    values.setdefault(value.tag, {})[event.step] = value.simple_value
        return values

    def checkpoints(self, estimator: Any) -> List[int]:
        """The global steps of the checkpoints in an estimator's folder."""
        return sorted(int(file.stem.split("-")[1]) for file in Path(estimator.model_dir).glob("model.ckpt-*.index"))


def means(losses: np.ndarray, loop: int) -> List[float]:
    """The mean loss of each loop, over its iterations and replicas: exact where both are powers of two."""
    return [float(each) for each in losses.astype(np.float64).reshape(len(losses) // loop, -1).mean(axis=1)]
