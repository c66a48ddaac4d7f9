"""The Paddle digits workload's network, its native runs and its saved model."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.paddle_mnist import MODEL_FILES, Settings, model_folder
from ipu_conformance.workloads.paddle_mnist.digits import SIDE, datasets

pytestmark = pytest.mark.skipif(importlib.util.find_spec("paddle") is None, reason="needs paddle")

TINY = Settings(epochs=2, train_size=40, test_size=11, batch_size=6)


def test_the_network_has_the_published_layers():
    """Convolutions of 20 and 50 filters of 5 x 5, a batch norm between, pools of 2, and 800 to 10."""
    from ipu_conformance.workloads.paddle_mnist.model import build, static_mode

    with static_mode():
        network = build(7, learning_rate=1e-3)
        block = network.main.global_block()
        shapes = {weight.name: tuple(weight.shape) for weight in block.all_parameters() if weight.trainable}
        forward = [op.type for op in block.ops if op.attr("op_role") in (0, 256)]
        rates = {op.input("LearningRate")[0] for op in block.ops if op.type == "adam"}

    assert shapes == {
        "conv1.weight": (20, 1, 5, 5),
        "conv1.bias": (20,),
        "norm.weight": (20,),
        "norm.bias": (20,),
        "conv2.weight": (50, 20, 5, 5),
        "conv2.bias": (50,),
        "fc.weight": (800, 10),
        "fc.bias": (10,),
    }
    assert [op for op in forward if op in ("conv2d", "pool2d", "batch_norm", "mul", "softmax")] == [
        "conv2d", "pool2d", "batch_norm", "conv2d", "pool2d", "mul", "softmax",
    ]  # fmt: skip
    assert len(rates) == 1
    assert tuple(network.prediction.shape) == (7, 10)


def test_static_mode_ends_with_the_work():
    """A caller's dynamic mode comes back, also after an error; a static one stays."""
    import paddle

    from ipu_conformance.workloads.paddle_mnist.model import static_mode

    assert paddle.in_dynamic_mode()
    with static_mode():
        assert not paddle.in_dynamic_mode()
        with static_mode():
            pass
        assert not paddle.in_dynamic_mode()
    assert paddle.in_dynamic_mode()
    with pytest.raises(KeyError), static_mode():
        raise KeyError("missing")
    assert paddle.in_dynamic_mode()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short native run, its model folder and what it said."""
    from ipu_conformance.workloads.paddle_mnist.training import train

    folder = tmp_path_factory.mktemp("run")
    lines = []
    result = train(TINY, native=True, model=model_folder(folder), every=4, say=lines.append)
    return result, folder, lines


def test_validations_follow_some_batches_and_every_pass(trained):
    """A line has the epoch, the batch and both costs; validations are on the whole test set."""
    result, _, lines = trained
    said = [line.split(",")[:2] for line in lines if "Cost" in line]

    assert said == [[f"Epoch {epoch}", f" batch {batch}"] for epoch in (1, 2) for batch in (4, 6)]
    assert lines[0] == f"Epoch 1, batch 4, Cost {result.costs[3]:.6f}, Validation Cost {result.validations[0].cost:.6f}"
    assert [each.batches for each in result.validations] == [4, 6, 10, 12]
    assert result.passes == (result.validations[1], result.validations[3])
    assert all((each.accuracy * TINY.test_size) % 1 == 0 for each in result.validations)
    assert len(result.costs) == 12


def test_the_best_pass_has_the_lowest_validation_cost(trained):
    """Its weights are kept, and its accuracy is the run's."""
    result = trained[0]
    costs = [each.cost for each in result.passes]

    assert costs[result.best - 1] == min(costs)
    assert result.accuracy == result.passes[result.best - 1].accuracy
    assert replace(result, passes=result.passes[::-1]).best == 3 - result.best


def test_a_seed_makes_a_native_run_repeatable(trained):
    """The same seed gives the same bits; another one other weights and another order."""
    from ipu_conformance.workloads.paddle_mnist.training import train

    again, other = (train(replace(TINY, seed=seed), native=True) for seed in (0, 1))

    assert again.costs == trained[0].costs
    assert other.costs[0] != again.costs[0]


def test_the_saved_model_is_that_of_the_best_pass(trained):
    """Two files, nothing else, with the weights of the best pass; for one image every shape is that of one image."""
    from ipu_conformance.workloads.paddle_mnist import saved_model
    from ipu_conformance.workloads.paddle_mnist.model import static_mode

    result, folder, _ = trained
    assert sorted(path.name for path in folder.iterdir()) == ["model"]
    assert sorted(path.name for path in model_folder(folder).iterdir()) == sorted(MODEL_FILES)
    with static_mode():
        model = saved_model.load(model_folder(folder), batch=1)
        made = {op: model.program.global_block().var(op).shape for op in (model.image, model.prediction.name)}
        leading = {
            variable.shape[0]
            for variable in model.program.list_vars()
            if not variable.persistable and len(variable.shape) > 1
        }
        for name, value in result.weights.items():
            assert np.array_equal(np.array(model.scope.find_var(name).get_tensor()), value)

    assert list(made.values()) == [(1, 1, SIDE, SIDE), (1, 10)]
    assert leading == {1}


def test_saving_again_replaces_the_model(trained, tmp_path, monkeypatch):
    """The new model is complete before the old one goes; one that cannot be saved leaves the old one."""
    from paddle import static

    from ipu_conformance.workloads.paddle_mnist import saved_model
    from ipu_conformance.workloads.paddle_mnist.model import static_mode
    from ipu_conformance.workloads.paddle_mnist.trainers import Host, NativeTrainer, put

    with static_mode():
        host = Host(TINY)
        NativeTrainer(TINY, host)
        put(trained[0].weights, host.scope)
        saved_model.save(host, tmp_path / "model")
        first = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
        changed = {name: value + 1 for name, value in trained[0].weights.items()}
        put(changed, host.scope)
        saved_model.save(host, tmp_path / "model")
        second = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}

        def fail(prefix, *args, **kwargs):
            Path(prefix + ".pdmodel").write_text("half")
            raise OSError("disk full")

        monkeypatch.setattr(static, "save_inference_model", fail)
        with pytest.raises(WorkloadError, match=r"cannot be saved to .* \(disk full\); name another --folder"):
            saved_model.save(host, tmp_path / "model")

    assert sorted(first) == sorted(second) == sorted(MODEL_FILES)
    assert first[MODEL_FILES[1]] != second[MODEL_FILES[1]]
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == second
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_damaged_model_is_refused_in_a_sentence(trained, tmp_path):
    """What Paddle says of it is a part of the sentence."""
    from ipu_conformance.workloads.paddle_mnist import saved_model
    from ipu_conformance.workloads.paddle_mnist.model import static_mode

    for name in MODEL_FILES:
        content = (model_folder(trained[1]) / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
    with static_mode(), pytest.raises(WorkloadError) as refused:
        saved_model.load(tmp_path, batch=1)

    assert str(refused.value).startswith(f"{tmp_path} has recognise_digits.pdmodel and ")
    assert str(refused.value).endswith("; train again")
    assert "\n" not in str(refused.value)


def test_a_picture_gets_the_digit_and_the_probability_of_the_network(trained, tmp_path):
    """The re-batched model says of one image what the network says of it among others, up to rounding."""
    from ipu_conformance.workloads.paddle_mnist.model import static_mode
    from ipu_conformance.workloads.paddle_mnist.saved_model import recognise
    from ipu_conformance.workloads.paddle_mnist.trainers import Host, NativeTrainer, put

    result, folder, _ = trained
    test = datasets(TINY)[1]
    with static_mode():
        host = Host(TINY)
        NativeTrainer(TINY, host)
        put(result.weights, host.scope)
        expected = host.evaluate(test)[0]
    found = [recognise(image[np.newaxis], folder, native=True) for image in test.images[:3]]
    # A score is a sum of 800 products of features that are sums of 500 and 25: float32 rounds each addition by at
    # most half an eps of the largest partial sum, and a probability changes at most as much as its score does.
    scale = 800 * np.abs(result.weights["fc.weight"]).max() * 10
    unit = float(np.finfo(np.float32).eps) * (800 + 500 + 25) * scale

    for one, row in zip(found, expected):
        assert one.digit == row.argmax()
        assert abs(one.probability - row.max()) <= unit
    assert (folder / "ir_graph.dot") in found[0].drawings
    text = (folder / "ir_graph.dot").read_text()
    assert all(op in text for op in ("conv2d", "batch_norm", "pool2d", "softmax"))
    for drawing in found[0].drawings:
        drawing.unlink()


def test_the_graph_is_drawn_without_graphviz(trained, tmp_path, monkeypatch):
    """Where there is no dot command the drawing is the DOT file."""
    from ipu_conformance.workloads.paddle_mnist import saved_model
    from ipu_conformance.workloads.paddle_mnist.model import static_mode

    monkeypatch.setenv("PATH", str(tmp_path))
    with static_mode():
        drawn = saved_model.draw(saved_model.load(model_folder(trained[1]), batch=1).program, tmp_path)

    assert drawn == (tmp_path / "ir_graph.dot",)
    assert list(tmp_path.iterdir()) == [tmp_path / "ir_graph.dot"]
