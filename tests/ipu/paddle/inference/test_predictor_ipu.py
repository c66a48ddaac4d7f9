"""Predictors of paddle.inference on the IPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, Sequence, Tuple

import numpy as np
import pytest

from ..ops import dyadic
from .conftest import exact

SIZE = 3
Saved = Callable[[int], str]


def config(paddle: Any, prefix: str, *enabling: Any, **settings: Any) -> Any:
    """A configuration of a saved model on the IPU."""
    made = paddle.inference.Config(prefix + ".pdmodel", prefix + ".pdiparams")
    made.enable_ipu(*enabling)
    made.set_ipu_config(**settings)
    return made


def predict(paddle: Any, made: Any, x: np.ndarray) -> np.ndarray:
    """The output of a predictor for one input."""
    predictor = paddle.inference.create_predictor(made)
    predictor.get_input_handle("x").copy_from_cpu(x)
    predictor.run()
    return np.asarray(predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu())


@pytest.mark.parametrize("size", [SIZE, -1], ids=["fixed", "any"])
def test_a_predictor_computes_the_model(paddle: Any, saved: Saved, size: int) -> None:
    """Through handles, a predictor gives the outputs of the saved model; -1 becomes the micro-batch size."""
    x = dyadic.samples(SIZE)
    got = predict(paddle, config(paddle, saved(size), 1, SIZE), x)

    assert got.dtype == np.float32
    assert got.tolist() == dyadic.float32(exact(x)).tolist()


def test_handles_have_names_shapes_and_types(paddle: Any, saved: Saved) -> None:
    """Names are the model's; shapes follow what was copied in, or was computed."""
    predictor = paddle.inference.create_predictor(config(paddle, saved(SIZE), 1, SIZE))
    (name,) = predictor.get_output_names()
    given, made = predictor.get_input_handle("x"), predictor.get_output_handle(name)
    given.copy_from_cpu(dyadic.samples(SIZE))
    predictor.run()

    assert predictor.get_input_names() == ["x"]
    assert given.shape() == [SIZE, 2]
    assert made.shape() == [SIZE, 3]
    assert given.type() == made.type() == paddle.inference.DataType.FLOAT32


def test_each_run_takes_what_the_handle_holds_then(paddle: Any, saved: Saved) -> None:
    """Arrays are copied: changing one afterwards has no effect, copying another in has."""
    predictor = paddle.inference.create_predictor(config(paddle, saved(SIZE), 1, SIZE))
    given = predictor.get_input_handle("x")
    made = predictor.get_output_handle(predictor.get_output_names()[0])
    outputs = []
    for turn in range(2):
        x = dyadic.samples(SIZE, turn * SIZE)
        given.copy_from_cpu(x)
        x[:] = 0
        predictor.run()
        outputs.append(made.copy_to_cpu())

    for turn, output in enumerate(outputs):
        assert output.tolist() == exact(dyadic.samples(SIZE, turn * SIZE)).tolist()


def test_a_predictor_takes_tensors(paddle: Any, saved: Saved) -> None:
    """run(inputs) gives the outputs as tensors."""
    predictor = paddle.inference.create_predictor(config(paddle, saved(SIZE), 1, SIZE))
    paddle.disable_static()
    x = dyadic.samples(SIZE)
    (got,) = predictor.run([paddle.to_tensor(x)])

    assert got.numpy().tolist() == exact(x).tolist()


@pytest.mark.parametrize("batches", [2, 5])
def test_batches_per_step(paddle: Any, saved: Saved, batches: int) -> None:
    """A step takes as many micro-batches and returns their outputs in order, with a dimension for them."""
    x = dyadic.samples(SIZE * batches)
    got = predict(paddle, config(paddle, saved(-1), 1, SIZE, False, batches), x)

    assert got.shape == (batches, SIZE, 3)
    assert got.reshape(-1, 3).tolist() == dyadic.float32(exact(x)).tolist()


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "batches"), [(2, 3), (4, 5)])
@pytest.mark.parametrize("pipelined", [True, False])
def test_a_model_is_spread_over_ipus(paddle: Any, saved: Saved, ipus: int, batches: int, pipelined: bool) -> None:
    """Several IPUs, in a pipeline or one after the other, give the outputs of one."""
    x = dyadic.samples(SIZE * batches)
    got = predict(paddle, config(paddle, saved(-1), ipus, SIZE, pipelined, batches), x)

    assert got.shape == (batches, SIZE, 3)
    assert got.reshape(-1, 3).tolist() == dyadic.float32(exact(x)).tolist()


@pytest.mark.ipus(4)
@pytest.mark.parametrize("batches", [1, 3])
def test_a_pipeline_needs_as_many_batches_as_ipus(paddle: Any, saved: Saved, batches: int) -> None:
    """Fewer batches per step than IPUs are refused."""
    made = config(paddle, saved(SIZE), 4, SIZE, True, batches)

    with pytest.raises(ValueError, match="equal or greater than the number of IPUs"):
        paddle.inference.create_predictor(made)


@pytest.mark.ipus(2)
@pytest.mark.parametrize("batches", [1, 3])
def test_replicas_share_a_step(paddle: Any, saved: Saved, batches: int) -> None:
    """With replicas a step takes as many micro-batches more; their dimension comes first."""
    x = dyadic.samples(SIZE * 2 * batches)
    got = predict(paddle, config(paddle, saved(-1), 2, SIZE, False, batches, ipu_replica_num=2), x)

    assert got.shape == ((2, batches, SIZE, 3) if batches > 1 else (2, SIZE, 3))
    assert got.reshape(-1, 3).tolist() == dyadic.float32(exact(x)).tolist()


def test_a_copied_configuration_is_the_same(paddle: Any, saved: Saved) -> None:
    """The settings of the IPU are copied with the others."""
    x = dyadic.samples(SIZE * 2)
    got = predict(paddle, paddle.inference.Config(config(paddle, saved(-1), 1, SIZE, False, 2)), x)

    assert got.shape == (2, SIZE, 3)
    assert got.reshape(-1, 3).tolist() == exact(x).tolist()


@pytest.mark.parametrize("kind", ["clones", "pool"])
def test_predictors_of_one_model_have_handles_of_their_own(paddle: Any, saved: Saved, kind: str) -> None:
    """Clones, and the predictors of a pool, compute with what was copied into each."""
    made = config(paddle, saved(SIZE), 1, SIZE)
    if kind == "pool":
        pool = paddle.inference.PredictorPool(made, 2)
        predictors = [pool.retrive(0), pool.retrive(1)]
    else:
        first = paddle.inference.create_predictor(made)
        predictors = [first, first.clone()]
    for turn, predictor in enumerate(predictors):
        predictor.get_input_handle("x").copy_from_cpu(dyadic.samples(SIZE, turn * SIZE))
    for predictor in predictors:
        predictor.run()

    for turn, predictor in enumerate(predictors):
        got = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
        assert got.tolist() == exact(dyadic.samples(SIZE, turn * SIZE)).tolist()


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
        paddle.inference.create_predictor(config(paddle, str(prefix), *enabling))


@pytest.mark.parametrize("what", ["input", "output", "nothing"])
def test_a_wrong_handle_is_refused(paddle: Any, saved: Saved, what: str) -> None:
    """Names must be the model's, and a run needs every input."""
    predictor = paddle.inference.create_predictor(config(paddle, saved(SIZE), 1, SIZE))
    asked = {
        "input": lambda: predictor.get_input_handle("y"),
        "output": lambda: predictor.get_output_handle("x"),
        "nothing": predictor.run,
    }

    with pytest.raises(RuntimeError, match=r"no input 'y'|no output 'x'|holds nothing yet"):
        asked[what]()


def test_without_enable_ipu_predictors_are_the_hosts(paddle: Any, saved: Saved) -> None:
    """A configuration that does not enable the IPU gives Paddle's own predictor."""
    prefix = saved(SIZE)
    made = paddle.inference.Config(prefix + ".pdmodel", prefix + ".pdiparams")
    made.disable_glog_info()
    x = dyadic.samples(SIZE)

    predictor = paddle.inference.create_predictor(made)
    predictor.get_input_handle("x").copy_from_cpu(x)
    predictor.run()

    assert isinstance(predictor, paddle.inference.Predictor)
    assert predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu().tolist() == exact(x).tolist()


def test_settings_may_come_from_a_file(paddle: Any, saved: Saved, tmp_path: Path) -> None:
    """load_ipu_config reads a setting from each line."""
    path = tmp_path / "ipu.cfg"
    path.write_text(f"ipu_micro_batch_size,{SIZE}\nipu_batches_per_step, 2\n", encoding="utf-8")
    made = config(paddle, saved(-1))
    made.load_ipu_config(str(path))
    x = dyadic.samples(2 * SIZE)
    got = predict(paddle, made, x)

    assert got.shape == (2, SIZE, 3)
    assert got.reshape(-1, 3).tolist() == exact(x).tolist()
