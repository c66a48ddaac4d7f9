"""Predictors of paddle.inference on the IPU."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from ipu_conformance import check

from ..device import predicted, predictor_config, save_model
from ..regression import samples
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


def test_a_predictor_has_several_inputs_and_outputs(paddle: Any, static: Any, tmp_path: Path) -> None:
    """Each of three inputs of one shape is used where the model uses it, and each output comes under its own name."""
    x, y, z = (static.data(name, [SIZE, 2], "float32") for name in "xyz")
    one = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
    outputs = [x * one - 2.0 * y, y * one - 4.0 * z, z * one - 8.0 * x]
    predictor = paddle.inference.create_predictor(
        predictor_config(paddle, save_model(paddle, tmp_path, [x, y, z], outputs), 1, SIZE)
    )
    fed = [samples(SIZE, turn * SIZE) for turn in range(3)]
    for name, array in zip("xyz", fed):
        predictor.get_input_handle(name).copy_from_cpu(array)
    predictor.run()
    computed = [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]

    check.equal(actual=predictor.get_input_names(), expected=list("xyz"), what="the list of inputs")
    check.equal(actual=len(computed), expected=len(outputs), what="the number of outputs")
    for number, factor in enumerate((2, 4, 8)):
        expected = fed[number] - np.float32(factor) * fed[(number + 1) % 3]
        check.identical(actual=computed[number], expected=expected, what=f"output {number}")


def test_handles_have_names_shapes_and_types(paddle: Any, predictor: Any) -> None:
    """Names are the model's; a shape is that of the array that was copied in or computed by the saved model."""
    out = predicted(predictor, samples(SIZE))
    (name,) = predictor.get_output_names()
    handles = predictor.get_input_handle("x"), predictor.get_output_handle(name)
    actual = [(each.shape(), each.type()) for each in handles]
    expected = [([SIZE, features], paddle.inference.DataType.FLOAT32) for features in (2, 3)]

    check.equal(actual=predictor.get_input_names(), expected=["x"], what="the list of inputs")
    check.equal(actual=actual, expected=expected, what="the shape and type of each handle")
    check.identical(actual=out, expected=exact(samples(SIZE)), what="the output")


def test_each_run_takes_what_the_handle_holds_then(predictor: Any) -> None:
    """Arrays are copied in, and out each time: changing one afterwards has no effect."""
    handle = predictor.get_input_handle("x")
    output = predictor.get_output_handle(predictor.get_output_names()[0])
    for turn in range(3):
        x = samples(SIZE, turn * SIZE)
        handle.copy_from_cpu(x)
        x[:] = 0
        predictor.run()
        output.copy_to_cpu()[:] = 0

        expected = exact(samples(SIZE, turn * SIZE))
        check.identical(actual=output.copy_to_cpu(), expected=expected, what=f"the output of run {turn}")


@pytest.mark.parametrize("kind", ["Tensor", "LoDTensor"])
def test_a_handle_takes_the_values_of_a_tensor(paddle: Any, predictor: Any, kind: str) -> None:
    """share_external_data feeds a tensor of either kind, of another size than before, too; an array is refused."""
    handle = predictor.get_input_handle("x")
    handle.copy_from_cpu(samples(SIZE))
    predictor.run()
    x = samples(SIZE, 2 * SIZE)
    tensor = paddle.base.core.LoDTensor()
    tensor.set(x, paddle.base.core.CPUPlace())
    if kind == "Tensor":
        with paddle.base.dygraph.guard(paddle.CPUPlace()):
            tensor = paddle.to_tensor(x)

    handle.share_external_data(tensor)
    predictor.run()

    output = predictor.get_output_handle(predictor.get_output_names()[0])
    check.equal(actual=handle.shape(), expected=list(x.shape), what="the shape of the handle")
    check.identical(actual=output.copy_to_cpu(), expected=exact(x), what="the output")
    with check.raises(TypeError, match="share_external_data", what="share_external_data of an array"):
        handle.share_external_data(x)


def test_a_predictor_takes_tensors(paddle: Any, predictor: Any) -> None:
    """run(inputs) gives the outputs as tensors."""
    paddle.disable_static()
    (out,) = predictor.run([paddle.to_tensor(samples(SIZE))])

    check.identical(actual=out.numpy(), expected=exact(samples(SIZE)), what="the output")


WAYS = {
    "1-batch": ((1, SIZE), {}, (SIZE, 3)),
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
    """Replicas, then batches per step, are dimensions of the outputs; how IPUs share the model changes nothing."""
    enabling, settings, shape = WAYS[way]
    x = samples(math.prod(shape[:-1]))
    out = predict(paddle, predictor_config(paddle, saved(-1), *enabling, **settings), x)

    check.identical(actual=out, expected=exact(x).reshape(shape), what="the output")


@pytest.mark.parametrize("configure", ["copied", "read_from_file"])
def test_settings_are_copied_and_read_from_files(paddle: Any, saved: Saved, tmp_path: Path, configure: str) -> None:
    """A copied configuration keeps the IPU's settings, and load_ipu_config reads one setting per line."""
    x, prefix, path = samples(SIZE * 4), saved(-1), tmp_path / "ipu.cfg"
    if configure == "copied":
        config = paddle.inference.Config(predictor_config(paddle, prefix, 1, SIZE, False, 4))
    else:
        path.write_text(f"ipu_micro_batch_size,{SIZE}\nipu_batches_per_step, 4\n", encoding="utf-8")
        config = predictor_config(paddle, prefix)
        config.load_ipu_config(str(path))

    check.identical(actual=predict(paddle, config, x), expected=exact(x).reshape(4, SIZE, 3), what="the output")


@pytest.mark.parametrize("kind", ["clones", "pool"])
def test_predictors_of_one_model_have_handles_of_their_own(paddle: Any, saved: Saved, kind: str) -> None:
    """Each clone, and each predictor of a pool, computes with its own inputs."""
    config = predictor_config(paddle, saved(SIZE), 1, SIZE)
    if kind == "pool":
        pool = paddle.inference.PredictorPool(config, 3)
        predictors = [pool.retrive(number) for number in range(3)]
    else:
        first = paddle.inference.create_predictor(config)
        predictors = [first, first.clone(), first.clone()]
    for turn, predictor in enumerate(predictors):
        predictor.get_input_handle("x").copy_from_cpu(samples(SIZE, turn * SIZE))
    for predictor in predictors:
        predictor.run()

    for turn, predictor in enumerate(predictors):
        out = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
        expected = exact(samples(SIZE, turn * SIZE))
        check.identical(actual=out, expected=expected, what=f"the output of predictor {turn} of the {kind}")


FEWER, EITHER = "equal or greater than the number of IPUs", (RuntimeError, ValueError)


@pytest.mark.parametrize(
    ("name", "enabling", "error", "sentence"),
    [
        pytest.param("none", (), EITHER, "Cannot open file", id="missing file"),
        pytest.param("model", (4, SIZE, True, 1), ValueError, FEWER, id="1 on 4 IPUs", marks=pytest.mark.ipus(4)),
        pytest.param("model", (4, SIZE, True, 3), ValueError, FEWER, id="3 on 4 IPUs", marks=pytest.mark.ipus(4)),
        pytest.param("model", (0,), EITHER, "ipu_device_num", id="no ipus", marks=pytest.mark.emulator),
        pytest.param("model", (1, 0), EITHER, "ipu_micro_batch_size", id="no batch", marks=pytest.mark.emulator),
    ],
)  # fmt: skip
def test_a_wrong_configuration_is_refused(
    paddle: Any, saved: Saved, name: str, enabling: Any, error: Any, sentence: str
) -> None:
    """The error names the file or the setting."""
    prefix = Path(saved(SIZE)).with_name(name)

    with check.raises(error, match=sentence, what=f"a predictor of {name} with {enabling}"):
        paddle.inference.create_predictor(predictor_config(paddle, str(prefix), *enabling))


@pytest.mark.parametrize("handle", ["get_input_handle", "get_output_handle"])
def test_a_wrong_handle_is_refused(predictor: Any, handle: str) -> None:
    """A variable that the model does not have is named."""
    with check.raises(RuntimeError, match="absent", what=f"{handle}('absent')"):
        getattr(predictor, handle)("absent")


@pytest.mark.emulator
def test_a_run_needs_every_input(predictor: Any) -> None:
    """A run before anything was copied into a handle is refused."""
    with check.raises(RuntimeError, match="holds nothing yet", what="a run before anything is copied in"):
        predictor.run()


def test_without_enable_ipu_predictors_are_the_hosts(paddle: Any, saved: Saved) -> None:
    """A configuration that does not enable the IPU gives Paddle's own predictor."""
    prefix = saved(SIZE)
    config = paddle.inference.Config(prefix + ".pdmodel", prefix + ".pdiparams")
    config.disable_glog_info()
    predictor = paddle.inference.create_predictor(config)

    check.instance(actual=predictor, expected=paddle.inference.Predictor, what="the predictor")
    check.identical(actual=predicted(predictor, samples(SIZE)), expected=exact(samples(SIZE)), what="the output")
