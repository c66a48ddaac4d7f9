"""Predictors of paddle.inference on the IPU."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable, Dict, Sequence, Tuple

import numpy as np
import pytest

from ..device import predicted, predictor_config
from ..regression import float32, samples
from .conftest import exact

SIZE = 3
Saved = Callable[[int], str]


@pytest.fixture
def predictor(paddle: Any, saved: Saved) -> Any:
    """A predictor of the saved model, on one IPU."""
    return paddle.inference.create_predictor(predictor_config(paddle, saved(SIZE), 1, SIZE))


def predict(paddle: Any, config: Any, x: np.ndarray) -> np.ndarray:
    """The output of the configured predictor for one input."""
    return predicted(paddle.inference.create_predictor(config), x)


@pytest.mark.parametrize("size", [SIZE, -1], ids=["fixed", "any"])
def test_a_predictor_computes_the_model(paddle: Any, saved: Saved, size: int) -> None:
    """Through handles, a predictor gives the outputs of the saved model; -1 becomes the micro-batch size."""
    x = samples(SIZE)
    got = predict(paddle, predictor_config(paddle, saved(size), 1, SIZE), x)

    assert got.dtype == np.float32
    assert got.tolist() == float32(exact(x)).tolist()


def test_handles_have_names_shapes_and_types(paddle: Any, predictor: Any) -> None:
    """Names are the model's; shapes follow what was copied in, or was computed."""
    predicted(predictor, samples(SIZE))
    (name,) = predictor.get_output_names()
    fed, fetched = predictor.get_input_handle("x"), predictor.get_output_handle(name)

    assert predictor.get_input_names() == ["x"]
    assert fed.shape() == [SIZE, 2]
    assert fetched.shape() == [SIZE, 3]
    assert fed.type() == fetched.type() == paddle.inference.DataType.FLOAT32


def test_each_run_takes_what_the_handle_holds_then(predictor: Any) -> None:
    """Arrays are copied: changing one afterwards has no effect, copying another in has."""
    handle = predictor.get_input_handle("x")
    output = predictor.get_output_handle(predictor.get_output_names()[0])
    outputs = []
    for turn in range(2):
        x = samples(SIZE, turn * SIZE)
        handle.copy_from_cpu(x)
        x[:] = 0
        predictor.run()
        outputs.append(output.copy_to_cpu())

    for turn, values in enumerate(outputs):
        assert values.tolist() == exact(samples(SIZE, turn * SIZE)).tolist()


def test_a_predictor_takes_tensors(paddle: Any, predictor: Any) -> None:
    """run(inputs) gives the outputs as tensors."""
    paddle.disable_static()
    x = samples(SIZE)
    (got,) = predictor.run([paddle.to_tensor(x)])

    assert got.numpy().tolist() == exact(x).tolist()


WAYS = {
    "2-batches": ((1, SIZE, False, 2), {}, (2, SIZE, 3)),
    "5-batches": ((1, SIZE, False, 5), {}, (5, SIZE, 3)),
    **{
        f"{ipus}-ipus-{word}": ((ipus, SIZE, pipelined, batches), {}, (batches, SIZE, 3))
        for ipus, batches in ((2, 3), (4, 5))
        for word, pipelined in (("pipelined", True), ("sharded", False))
    },
    "2-replicas": ((2, SIZE, False, 1), {"ipu_replica_num": 2}, (2, SIZE, 3)),
    "2-replicas-3-batches": ((2, SIZE, False, 3), {"ipu_replica_num": 2}, (2, 3, SIZE, 3)),
}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.ipus(enabling[0])) for way, (enabling, *_) in WAYS.items()]
)
def test_a_step_takes_all_its_micro_batches(paddle: Any, saved: Saved, way: str) -> None:
    """Batches per step, behind replicas, are dimensions of the outputs; how IPUs share the model changes nothing."""
    enabling, settings, shape = WAYS[way]
    x = samples(math.prod(shape[:-1]))
    got = predict(paddle, predictor_config(paddle, saved(-1), *enabling, **settings), x)

    assert got.shape == shape
    assert got.reshape(-1, 3).tolist() == float32(exact(x)).tolist()


@pytest.mark.ipus(4)
@pytest.mark.parametrize("batches", [1, 3])
def test_a_pipeline_needs_as_many_batches_as_ipus(paddle: Any, saved: Saved, batches: int) -> None:
    """Fewer batches per step than IPUs are refused."""
    config = predictor_config(paddle, saved(SIZE), 4, SIZE, True, batches)

    with pytest.raises(ValueError, match="equal or greater than the number of IPUs"):
        paddle.inference.create_predictor(config)


def copied(paddle: Any, prefix: str, folder: Path) -> Any:
    """A copy of a configuration."""
    return paddle.inference.Config(predictor_config(paddle, prefix, 1, SIZE, False, 2))


def read_from_file(paddle: Any, prefix: str, folder: Path) -> Any:
    """A configuration with the settings of a file, one on each line."""
    path = folder / "ipu.cfg"
    path.write_text(f"ipu_micro_batch_size,{SIZE}\nipu_batches_per_step, 2\n", encoding="utf-8")
    config = predictor_config(paddle, prefix)
    config.load_ipu_config(str(path))
    return config


@pytest.mark.parametrize("configure", [copied, read_from_file])
def test_settings_are_copied_and_read_from_files(
    paddle: Any, saved: Saved, tmp_path: Path, configure: Callable[..., Any]
) -> None:
    """A copied configuration has the settings of the IPU, and load_ipu_config reads one from each line."""
    x = samples(SIZE * 2)
    got = predict(paddle, configure(paddle, saved(-1), tmp_path), x)

    assert got.shape == (2, SIZE, 3)
    assert got.reshape(-1, 3).tolist() == exact(x).tolist()


@pytest.mark.parametrize("kind", ["clones", "pool"])
def test_predictors_of_one_model_have_handles_of_their_own(paddle: Any, saved: Saved, kind: str) -> None:
    """Clones, and the predictors of a pool, compute with what was copied into each."""
    config = predictor_config(paddle, saved(SIZE), 1, SIZE)
    if kind == "pool":
        pool = paddle.inference.PredictorPool(config, 2)
        predictors = [pool.retrive(0), pool.retrive(1)]
    else:
        first = paddle.inference.create_predictor(config)
        predictors = [first, first.clone()]
    for turn, predictor in enumerate(predictors):
        predictor.get_input_handle("x").copy_from_cpu(samples(SIZE, turn * SIZE))
    for predictor in predictors:
        predictor.run()

    for turn, predictor in enumerate(predictors):
        got = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
        assert got.tolist() == exact(samples(SIZE, turn * SIZE)).tolist()


WRONG: Dict[str, Tuple[str, Sequence[Any], str]] = {
    "missing file": ("none", (), "Cannot open file"),
    "no ipus": ("model", (0,), "ipu_device_num"),
    "no batch": ("model", (1, 0), "ipu_micro_batch_size"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_configuration_is_refused(paddle: Any, saved: Saved, what: str) -> None:
    """One sentence names the file or the setting."""
    name, enabling, sentence = WRONG[what]
    prefix = Path(saved(SIZE)).with_name(name)

    with pytest.raises((RuntimeError, ValueError), match=sentence):
        paddle.inference.create_predictor(predictor_config(paddle, str(prefix), *enabling))


@pytest.mark.parametrize("what", ["input", "output", "nothing"])
def test_a_wrong_handle_is_refused(predictor: Any, what: str) -> None:
    """Names must be the model's, and a run needs every input."""
    requests = {
        "input": lambda: predictor.get_input_handle("y"),
        "output": lambda: predictor.get_output_handle("x"),
        "nothing": predictor.run,
    }

    with pytest.raises(RuntimeError, match=r"no input 'y'|no output 'x'|holds nothing yet"):
        requests[what]()


def test_without_enable_ipu_predictors_are_the_hosts(paddle: Any, saved: Saved) -> None:
    """A configuration that does not enable the IPU gives Paddle's own predictor."""
    prefix = saved(SIZE)
    config = paddle.inference.Config(prefix + ".pdmodel", prefix + ".pdiparams")
    config.disable_glog_info()
    x = samples(SIZE)

    predictor = paddle.inference.create_predictor(config)

    assert isinstance(predictor, paddle.inference.Predictor)
    assert predicted(predictor, x).tolist() == exact(x).tolist()
