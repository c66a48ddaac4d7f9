"""Pipelined estimators: the loops of the emulator, what reports say of them, and what cannot be exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

COUNT, RUNS, MICRO_BATCH = 4, 3, 5
INPUTS, HIDDEN, CLASSES = 6, 8, 2
KERNELS = {0: INPUTS * HIDDEN, 1: HIDDEN * CLASSES}
"""The values in the weight of each stage."""


@pytest.fixture
def estimator(tf: Any, tmp_path: Path) -> Any:
    """A function that makes an estimator of two stages with momentum on so many replicas."""
    from tensorflow.python import ipu

    v1 = tf.compat.v1

    def stage(number: int, shape: Any, mode: str) -> Callable[[Any], Any]:
        def function(x: Any) -> Any:
            y = tf.matmul(x, v1.get_variable(f"kernel{number}", shape, use_resource=True))
            return tf.nn.relu(y) if number == 0 or mode == "infer" else tf.reduce_mean(tf.square(y))

        return function

    def make(replicas: int) -> Any:
        def optimizer_function(loss: Any) -> Any:
            optimizer = ipu.optimizers.CrossReplicaOptimizer(v1.train.MomentumOptimizer(0.1, 0.5))
            return ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss)

        def model_fn(mode: str) -> Any:
            return ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(
                mode,
                [stage(0, [INPUTS, HIDDEN], mode), stage(1, [HIDDEN, CLASSES], mode)],
                COUNT,
                optimizer_function=optimizer_function,
            )

        system = ipu.config.IPUConfig()
        system.auto_select_ipus = 2 * replicas
        run = ipu.ipu_run_config.IPURunConfig(COUNT * RUNS, system, replicas, num_shards=2)
        config = ipu.ipu_run_config.RunConfig(run, model_dir=str(tmp_path / "model"), log_step_count_steps=None)
        return ipu.ipu_pipeline_estimator.IPUPipelineEstimator(model_fn, config=config)

    yield make
    ipu.utils.reset_ipu_configuration()


def fed(tf: Any) -> Callable[[], Any]:
    """Micro-batches without end."""
    rows = np.ones([MICRO_BATCH, INPUTS], np.float32)
    return lambda: tf.data.Dataset.from_tensors(rows).repeat()


@pytest.fixture
def profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], List[Dict[str, Any]]]:
    """What the reports hold that were written since, in their order."""
    folder = tmp_path / "reports"
    options = {"autoReport.all": "true", "autoReport.directory": str(folder)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    return lambda: [json.loads(path.read_text()) for path in sorted(folder.glob("*/profile.json"))]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_report_describes_the_pipeline(tf: Any, estimator: Any, profiles: Any, replicas: int) -> None:
    """The report of a training has the stages, the runs and the updates of a loop, and each stage's weights."""
    estimator(replicas).train(fed(tf), steps=COUNT * RUNS)
    (profile,) = profiles()
    program = profile["program"]

    assert (program["name"], program["schedule"], program["optimizer"]) == ("training_pipeline", "grouped", "momentum")
    assert (program["stages"], program["replicas"], program["ipus_per_replica"]) == (2, replicas, 2)
    assert (program["micro_batches"], program["device_iterations"], program["updates"]) == (COUNT, RUNS, RUNS)
    assert {ipu["ipu"]: ipu["weights"] for ipu in profile["memory"]["ipus"]} == {
        stage: 4 * values for stage, values in KERNELS.items()
    }
    assert profile["ops"]["MatMul"] == 2


def test_a_report_of_a_prediction_has_no_update(tf: Any, estimator: Any, profiles: Any) -> None:
    """A program that predicts has the forward passes of all stages alone."""
    list(estimator(1).predict(fed(tf), num_predictions=1))
    (profile,) = profiles()

    assert profile["program"]["name"] == "prediction_pipeline"
    assert (profile["program"]["training"], profile["program"]["updates"]) == (False, 0)
    assert (profile["ops"]["MatMul"], profile["ops"]["Relu"]) == (2, 2)


def test_a_pipeline_is_not_exported(tf: Any, estimator: Any, tmp_path: Path) -> None:
    """A SavedModel runs on the host, which has no pipeline."""
    made = estimator(1)
    made.train(fed(tf), steps=COUNT * RUNS)
    receive = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.ones([MICRO_BATCH, INPUTS])})

    with pytest.raises(NotImplementedError, match="IPUEstimator"):
        made.export_saved_model(str(tmp_path / "exported"), receive)


@given(iterations=st.integers(1, 60), count=st.integers(1, 20))
def test_a_loop_is_whole_runs(tf: Any, iterations: int, count: int) -> None:
    """A loop runs the pipeline as often as its count goes into the iterations without a remainder."""
    from ipu_conformance.emulator.tensorflow.estimator.pipeline import runs

    if iterations % count:
        with pytest.raises(ValueError, match=f"iterations_per_loop \\({iterations}\\)"):
            runs(iterations, count)
    else:
        assert runs(iterations, count) * count == iterations
