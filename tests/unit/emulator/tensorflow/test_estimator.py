"""Estimators on the emulator: how a kind plugs in, where data ends, what the host gets, and what reports read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import numpy as np
import pytest

RATE = 0.25
DATA = np.asarray([1, 2, 3, 4, 5, 6, 7, 8], np.float32)


@pytest.fixture
def ipu(tf: Any) -> Iterator[Any]:
    """The vendor's package, whose configuration is forgotten in the end."""
    from tensorflow.python import ipu

    yield ipu
    ipu.utils.reset_ipu_configuration()


@pytest.fixture
def config(tf: Any, ipu: Any, tmp_path: Path) -> Callable[..., Any]:
    """Makes the configuration of an estimator."""

    def make(loop: int = 2, replicas: int = 1, shards: int = 1) -> Any:
        options = ipu.config.IPUConfig()
        options.auto_select_ipus = replicas * shards
        session = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        # Programs this small take longer to optimize than to run.
        session.graph_options.rewrite_options.disable_meta_optimizer = True
        return ipu.ipu_run_config.RunConfig(
            ipu_run_config=ipu.ipu_run_config.IPURunConfig(loop, options, replicas, shards),
            model_dir=str(tmp_path / "model"),
            save_summary_steps=None,
            log_step_count_steps=None,
            session_config=session,
        )

    return make


def feed(tf: Any, repeat: Optional[int] = None) -> Callable[[], Any]:
    """An input function of the data, so many times or without end."""
    return lambda: tf.data.Dataset.from_tensor_slices(DATA).repeat(repeat)


def product(
    tf: Any, ipu: Any, also: Callable[[str, Any], Dict[str, Any]] = lambda mode, x: {}, wrap: Any = lambda opt: opt
) -> Callable[..., Any]:
    """A model function of one weight that starts with 1: the loss of x is x·w."""
    v1 = tf.compat.v1

    def model_fn(features: Any, mode: str) -> Any:
        weight = v1.get_variable("w", [], initializer=v1.ones_initializer())
        loss = weight * features
        fields: Dict[str, Any] = {"loss": loss, "predictions": {"product": tf.reshape(loss, [1])}}
        if mode == "train":
            fields["train_op"] = wrap(v1.train.GradientDescentOptimizer(RATE)).minimize(loss)
        fields.update(also(mode, features))
        if mode == "eval" and "eval_metric_ops" not in fields:
            fields["eval_metrics"] = (lambda loss: {}, [loss])
        return ipu.ipu_estimator.IPUEstimatorSpec(mode, **fields)

    return model_fn


def test_a_kind_of_estimator_brings_a_program(tf: Any, ipu: Any, config: Callable[..., Any]) -> None:
    """What ``_program`` returns builds the loop of every call, and stock does the rest."""
    from ipu_conformance.emulator.tensorflow.estimator.base import BaseEstimator
    from ipu_conformance.emulator.tensorflow.estimator.program import Program, counting_steps

    class Counting(Program):
        """Calls the model function once a run, with a feature of its own."""

        def train(self) -> Any:
            def training() -> Any:
                return self.call.model_fn(tf.constant(3.0), None).loss

            (loss,) = self.compiled(training)
            return tf.estimator.EstimatorSpec(
                self.call.mode, loss=loss, train_op=counting_steps(loss, self.run.iterations_per_loop)
            )

        evaluate = predict = train

    class Kind(BaseEstimator):
        def _program(self, call: Any) -> Program:
            calls.append(call)
            return Counting(call)

    calls: List[Any] = []
    made = Kind(product(tf, ipu), config=config(loop=5))
    made.train(feed(tf), steps=10)
    results = made.evaluate(feed(tf), steps=5)

    assert [call.mode for call in calls] == ["train", "eval"]
    assert results == {"loss": 3 * (1 - 2 * RATE * 3), "global_step": 15}


@pytest.mark.parametrize("call", ["train", "evaluate", "predict"])
def test_the_end_of_data_is_an_error(tf: Any, ipu: Any, config: Callable[..., Any], call: str) -> None:
    """A loop that finds no more data fails, and leaves no checkpoint of what it has begun."""
    from ipu_conformance.emulator.tensorflow.estimator.hooks import DataSetEnded

    made = ipu.ipu_estimator.IPUEstimator(product(tf, ipu), config=config(loop=3))
    made.train(feed(tf), steps=3)
    calls: Dict[str, Callable[[], Any]] = {
        "train": lambda: made.train(feed(tf, 1)),
        "evaluate": lambda: made.evaluate(feed(tf, 1), steps=9),
        "predict": lambda: list(made.predict(feed(tf, 1))),
    }
    with pytest.raises(DataSetEnded, match="ended in the middle of a loop"):
        calls[call]()

    assert made.get_variable_value("global_step") == 3
    assert made.get_variable_value("w") == 1 - RATE * DATA[:3].sum()


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_host_gets_means_over_replicas(tf: Any, ipu: Any, config: Callable[..., Any], replicas: int) -> None:
    """host_call gets what one replica hands over as it is, and the mean of what several do."""
    v1, seen = tf.compat.v1, []

    def model_fn(features: Any, mode: str) -> Any:
        weight = v1.get_variable("w", [], initializer=v1.ones_initializer())

        def host(gradient: Any) -> Any:
            seen.append(gradient.shape)
            return v1.train.GradientDescentOptimizer(RATE).apply_gradients([(gradient, v1.trainable_variables()[0])])

        loss = weight * features
        met = ipu.cross_replica_ops.cross_replica_sum(loss)
        call = (host, tf.gradients(loss, [weight]))
        return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss, train_op=met, host_call=call)

    made = ipu.ipu_estimator.IPUEstimator(model_fn, config=config(loop=1, replicas=replicas))
    made.train(feed(tf), steps=2)

    assert seen == [()]
    assert made.get_variable_value("w") == 1 - RATE * DATA[: 2 * replicas].reshape(2, replicas).mean(axis=1).sum()


def test_a_metric_may_be_read_before_it_is_updated(tf: Any, ipu: Any, config: Callable[..., Any]) -> None:
    """The value of a metric is that after all updates, in whichever order a model function has made the two."""
    v1 = tf.compat.v1

    def counted(mode: str, features: Any) -> Dict[str, Any]:
        keys = [v1.GraphKeys.LOCAL_VARIABLES]
        total = v1.get_variable("total", [], initializer=v1.zeros_initializer(), trainable=False, collections=keys)
        value = 2 * total
        return {"eval_metric_ops": {"doubled": (value, total.assign_add(features))}}

    made = ipu.ipu_estimator.IPUEstimator(product(tf, ipu, counted), config=config())

    assert made.evaluate(feed(tf), steps=4)["doubled"] == 2 * DATA[:4].sum()


def test_a_metric_that_is_no_state_is_refused(tf: Any, ipu: Any, config: Callable[..., Any]) -> None:
    """After the loop there are no features of which a value could be computed."""
    made = ipu.ipu_estimator.IPUEstimator(
        product(tf, ipu, lambda mode, features: {"eval_metric_ops": {"last": (features + 1, features.op)}}),
        config=config(),
    )
    with pytest.raises(ValueError, match="depends on features or labels"):
        made.evaluate(feed(tf), steps=2)


def test_a_scaffold_of_stocks_spec_is_used(tf: Any, ipu: Any, config: Callable[..., Any]) -> None:
    """The session is made as the scaffold of an EstimatorSpec says."""
    v1, called = tf.compat.v1, []

    def model_fn(features: Any, mode: str) -> Any:
        loss = v1.get_variable("w", [], initializer=v1.ones_initializer()) * features
        update = v1.train.GradientDescentOptimizer(RATE).minimize(loss)
        scaffold = v1.train.Scaffold(init_fn=lambda scaffold, session: called.append("init"))
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=update, scaffold=scaffold)

    ipu.ipu_estimator.IPUEstimator(model_fn, config=config()).train(feed(tf), steps=2)

    assert called == ["init"]


def test_what_was_trained_is_exported(tf: Any, ipu: Any, config: Callable[..., Any], tmp_path: Path) -> None:
    """A SavedModel holds the model function's predictions for the host."""
    v1 = tf.compat.v1
    made = ipu.ipu_estimator.IPUEstimator(product(tf, ipu), config=config())
    made.train(feed(tf), steps=2)

    def receiver() -> Any:
        x = v1.placeholder(tf.float32, [])
        return tf.estimator.export.TensorServingInputReceiver(x, {"x": x})

    folder = made.export_saved_model(str(tmp_path / "exported"), receiver)
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    expected = (1 - RATE * DATA[:2].sum()) * 8

    assert serve(x=tf.constant(8.0))["product"].numpy().tolist() == [expected]


@pytest.mark.parametrize("shards", [1, 2])
def test_a_model_stays_on_its_shards(tf: Any, ipu: Any, config: Callable[..., Any], shards: int) -> None:
    """A model function that names an IPU beyond num_shards is refused, also on a device of one IPU."""

    def model_fn(features: Any, mode: str) -> Any:
        with ipu.scopes.ipu_shard(2):
            return product(tf, ipu)(features, mode)

    made = ipu.ipu_estimator.IPUEstimator(model_fn, config=config(shards=shards))
    with pytest.raises(ValueError, match=f"uses 3 IPUs, but num_shards of the IPURunConfig is {shards}"):
        made.train(feed(tf), steps=2)


@pytest.mark.parametrize("times", [0, 2])
def test_a_logging_hook_is_given_tensors_once(tf: Any, ipu: Any, config: Callable[..., Any], times: int) -> None:
    """A hook that a model function has not given tensors, or twice, has nothing that it could log."""

    def logged(mode: str, features: Any) -> Dict[str, Any]:
        own = ipu.ipu_session_run_hooks.IPULoggingTensorHook(every_n_iter=1)
        for _ in range(times):
            own.log({"x": features})
        return {"training_hooks": [own]}

    made = ipu.ipu_estimator.IPUEstimator(product(tf, ipu, logged), config=config())
    with pytest.raises(RuntimeError, match="never called" if times == 0 else "called twice"):
        made.train(feed(tf), steps=2)


@pytest.mark.parametrize("replicas", [1, 2])
def test_reports_read_one_forward_pass(
    tf: Any, ipu: Any, config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, replicas: int
) -> None:
    """A report knows the loop, and the forward pass of one replica and micro-batch: no gradients, no updates."""
    from ipu_conformance.emulator.tensorflow.reports import folders

    written: List[Any] = []
    monkeypatch.setattr(folders, "wanted", lambda: True)
    monkeypatch.setattr(folders, "write", lambda program: written.append((program, program.graph())))
    wrap = ipu.optimizers.CrossReplicaOptimizer
    made = ipu.ipu_estimator.IPUEstimator(product(tf, ipu, wrap=wrap), config=config(loop=4, replicas=replicas))
    made.train(feed(tf), steps=4)
    ((program, graph),) = written

    assert (program.plan.device_iterations, program.plan.replicas, program.plan.training) == (4, replicas, True)
    assert list(graph.initializers) == ["w:0"]
    assert [op.type for op in graph.ops] == ["tensorflow::IteratorGetNext", "Mul"]


@pytest.mark.parametrize("replicas", [1, 2])
def test_programs_of_version_1_have_no_resources_of_their_own(
    tf: Any, ipu: Any, config: Callable[..., Any], replicas: int
) -> None:
    """Where variables are no resources, as after ``disable_v2_behavior``, an estimator trains and counts as ever."""
    v1, wrap = tf.compat.v1, ipu.optimizers.CrossReplicaOptimizer
    v1.disable_resource_variables()
    try:
        estimator = ipu.ipu_estimator.IPUEstimator(product(tf, ipu, wrap=wrap), config=config(replicas=replicas))
        estimator.train(feed(tf), steps=2)
        evaluated = estimator.evaluate(feed(tf), steps=2)
    finally:
        v1.enable_resource_variables()

    assert (evaluated["global_step"], estimator.get_variable_value("global_step")) == (4, 2)
    assert estimator.get_variable_value("w") == 1 - RATE * DATA[: 2 * replicas].sum() / replicas


def test_summaries_of_a_model_function_are_said_to_be_lost(
    tf: Any, ipu: Any, config: Callable[..., Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A summary inside of the loop is not written, and a warning says how it would be."""

    def summarised(mode: str, x: Any) -> Dict[str, Any]:
        tf.compat.v1.summary.scalar("x", x)
        return {}

    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    ipu.ipu_estimator.IPUEstimator(product(tf, ipu, summarised), config=config()).train(feed(tf), steps=2)

    assert any("host_call" in record.message for record in caplog.records)
