"""What a compiler writes to files: the model as ONNX, and drawings of its IR."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path
from typing import Any, Dict, List, Sequence, Set, Tuple

import numpy as np
import pytest

from ipu_conformance import check, interpreter, ir
from ipu_conformance.ir.checks import ALL_REDUCES
from ipu_conformance.oracle.tolerance.ops import Tolerance

from ...training.executed import executable
from ..device import compiled, held, started

DOT_CHECKS = ("Fwd0", "Fwd1", "Bwd0", "PreAlias", "Final")
MICRO_BATCH = 2
PLACES = [(1, 0), (0, 1), (2, 2)]
"""The IPU and the stage of each layer."""
BATCH = np.linspace(-1, 1, 5 * MICRO_BATCH * 3, dtype=np.float32).reshape(5, MICRO_BATCH, 3)
"""Five micro-batches, as many as are accumulated."""


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """No case sees a variable of the machine it runs on."""
    monkeypatch.delenv("IPU_ONNX_DUMP_PATH", raising=False)


class Net:
    """Three layers, each in a shard of its own, trained by SGD."""

    def __init__(self, static: Any, paddle: Any, *, clip: bool = False) -> None:
        self.static, self.paddle = static, paddle
        value = static.data("x", [None, 3], "float32")
        for number, (index, stage) in enumerate(PLACES):
            with static.ipu_shard_guard(index, stage):
                value = paddle.tanh(static.nn.fc(value, 4 + number, weight_attr=f"w{number}", bias_attr=False))
        with static.ipu_shard_guard(2, 2):
            self.loss = paddle.mean(value)
        norm = paddle.nn.ClipGradByGlobalNorm(0.5) if clip else None
        paddle.optimizer.SGD(0.5, grad_clip=norm).minimize(self.loss)
        self.executor = started(paddle)

    def compile(self, *, pipelined: bool = True, replicas: int = 1, accumulation: int = 5, **options: Any) -> Any:
        """The compiled program; without a pipeline everything is on one IPU."""
        strategy = self.static.IpuStrategy()
        ipus = 3 * replicas if pipelined else replicas
        strategy.set_options(
            {
                "num_ipus": ipus,
                "micro_batch_size": MICRO_BATCH,
                "enable_manual_shard": pipelined,
                "enable_pipelining": pipelined,
                "enable_gradient_accumulation": accumulation > 1,
                "accumulation_factor": accumulation,
                "enable_replicated_graphs": replicas > 1,
                "replicated_graph_count": replicas,
                **options,
            }
        )
        self.compiled = self.static.IpuCompiledProgram(ipu_strategy=strategy)
        return self.compiled.compile(["x"], [self.loss.name])

    def weights(self) -> Dict[str, np.ndarray]:
        """The weights that the host holds."""
        return {name: held(self.paddle, name) for name in ("w0", "w1", "w2")}


@pytest.fixture
def net(static: Any, paddle: Any) -> Net:
    """The network with fresh weights."""
    return Net(static, paddle)


def loaded(path: Path) -> Any:
    """The model in a file, which onnx.checker accepts."""
    import onnx

    model = onnx.load(str(path))
    onnx.checker.check_model(model)
    return model


def check_weights(model: Any, expected: Dict[str, np.ndarray]) -> None:
    """The weights of a model are these, bit for bit."""
    from onnx import numpy_helper

    weights = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    check.equal(actual=sorted(weights), expected=sorted(expected), what="the list of dumped weights")
    for name, array in expected.items():
        check.identical(actual=weights[name], expected=array, what=f"the dumped {name}")


def placement(model: Any) -> List[Tuple[str, Any, Any]]:
    """Type, IPU and stage of every op of a model."""
    nodes = [(node.op_type, {each.name: each.i for each in node.attribute}) for node in model.graph.node]
    return [(type, held.get("__ipu_number"), held.get("__pipeline_stage")) for type, held in nodes]


PIPELINED = [(type, *guard) for guard in PLACES for type in ("MatMul", "Tanh")]
WHOLE = [(type, 0, None) for _ in PLACES for type in ("MatMul", "Tanh")]


@pytest.mark.parametrize(
    ("pipelined", "placed"),
    [(True, [*PIPELINED, ("ReduceMean", 2, 2)]), (False, [*WHOLE, ("ReduceMean", 0, None)])],
    ids=["pipelined", "whole"],
)
def test_the_dumped_model_is_the_forward_pass(net: Net, tmp_path: Path, pipelined: bool, placed: Any) -> None:
    """``onnx_dump_path`` writes valid ONNX, from the feeds, in micro-batches, to the fetches, with the weights' bits.

    Each op carries the IPU and the stage of its guard, which has no effect unless the graph is sharded by hand.
    """
    weights = net.weights()
    net.compile(pipelined=pipelined, onnx_dump_path=str(tmp_path / "model.onnx"))

    model = loaded(tmp_path / "model.onnx")
    types = {each.name: each.type.tensor_type for each in model.graph.input}
    feeds = {name: (type.elem_type, [each.dim_value for each in type.shape.dim]) for name, type in types.items()}
    fetches = [each.name for each in model.graph.output]
    what = "the type (1 is FLOAT) and shape of each feed"
    check.equal(actual=feeds, expected={"x": (1, [MICRO_BATCH, 3])}, what=what)
    check.equal(actual=fetches, expected=[net.loss.name], what="the list of fetches")
    check_weights(model, weights)
    check.equal(actual=placement(model), expected=placed, what="the type, IPU and stage of each op")


def test_the_dumped_model_computes_the_loss(net: Net, tmp_path: Path) -> None:
    """The dump, evaluated by ONNX's own reference, gives the loss of the device for each micro-batch."""
    from onnx.reference import ReferenceEvaluator

    program = net.compile(pipelined=False, onnx_dump_path=str(tmp_path / "model.onnx"))
    (losses,) = net.executor.run(program, feed={"x": BATCH.reshape(-1, 3)}, fetch_list=[net.loss])
    model = loaded(tmp_path / "model.onnx")
    for node in model.graph.node:  # the reference takes no attributes that ONNX does not define
        kept = [each for each in node.attribute if not each.name.startswith("__")]
        del node.attribute[:]
        node.attribute.extend(kept)
    outputs = [output.name for output in model.graph.output]
    check.equal(actual=len(outputs), expected=1, what="the number of outputs in the dump")
    reference = ReferenceEvaluator(model)
    expected = np.array([reference.run(None, {"x": each})[0] for each in BATCH]).reshape(5, 1)

    # Products of at most 6 terms, tanh of values below 1, and a mean of 12: each sums or rounds at most that often.
    allowed = np.array(3 * (6 + 2) + 12) * float(np.finfo(np.float32).eps)
    tolerance = Tolerance(allowed, "three products of at most 6 terms and their tanh, and a mean of 12", 0.0)
    check.close(actual=losses, expected=expected, tolerance=tolerance, what="the loss by micro-batch")


def test_a_difference_is_executed_as_it_was_computed(static: Any, paddle: Any, tmp_path: Path) -> None:
    """The terms of a difference stand in the dump in their order; whole numbers are compared bit for bit."""
    x = static.data("x", [4, 3], "float32")
    start = paddle.nn.initializer.Assign(np.array([5.0, -7.0, 11.0], np.float32))
    base = paddle.create_parameter([3], "float32", default_initializer=start)
    out = paddle.nn.functional.relu(x * x - base)
    started(paddle)
    samples = np.arange(-6, 6, dtype=np.float32).reshape(4, 3)
    (returned,) = compiled(paddle, [out], onnx_dump_path=str(tmp_path / "model.onnx")).run(samples)

    outcome = interpreter.execute(ir.read(str(tmp_path / "model.onnx")), {"x": samples})

    check.equal(actual=len(outcome.outputs), expected=1, what="the number of outputs in the dump")
    (told,) = outcome.outputs.values()
    check.identical(actual=told[0, 0, 0].astype(np.float32), expected=returned, what="what the dump computes")


FUNCTIONS = (
    "paddle.matmul(x, y, transpose_y=True)",
    "paddle.sum(x, axis=1)",
    "paddle.sum(x, axis=[0, 2], keepdim=True)",
    "paddle.mean(x, axis=1, keepdim=True)",
    "paddle.max(x, axis=2)",
    "paddle.prod(x[:, :, :3], axis=2)",
    "paddle.argmax(x, axis=1)",
    "paddle.argmax(x, axis=2, keepdim=True)",
    "paddle.concat([x, y, x], axis=1)",
    "paddle.concat([x, y], axis=-1)",
    "paddle.stack([x, y, x], axis=1)",
    "paddle.stack([x, y], axis=-1)",
    "paddle.split(x, [1, 3], axis=1)[1]",
    "paddle.unstack(x, axis=2)[3]",
    "paddle.transpose(paddle.reshape(x, [5, 12]), [1, 0])",
    "paddle.transpose(x, [2, 0, 1])",
    "x[:, 1]",
    "x[:, 3:1:-1]",
    "x[:, :, 1::3]",
    "paddle.squeeze(paddle.unsqueeze(x, [1, 3]), [3])",
    "paddle.expand(paddle.unsqueeze(x, 1), [3, 2, 4, 5])",
    "paddle.tile(x, [1, 2, 3])",
    "paddle.where(x < y, x, y)",
    "paddle.maximum(x, y)",
    "paddle.cast(paddle.cast(x, 'int32'), 'float32')",
    "paddle.clip(x, -1.5, 2.5)",
    "paddle.scale(x, 2.0, bias=3.0, bias_after_scale=False)",
    "paddle.nn.functional.leaky_relu(x, 0.25)",
    "paddle.nn.functional.pad(x, [1, 2], value=3.0, data_format='NCL')",
    "paddle.nn.functional.conv1d(x, y[:, :, :2], stride=2, padding=1)",
    "paddle.nn.functional.conv1d(x, y[:2, :2, :2], groups=2, dilation=3)",
    "paddle.nn.functional.max_pool1d(x, 2, 3)",
)
"""Calls whose attributes, such as axes, are neither the default nor like each other."""


def _eighths(factor: int, step: float) -> np.ndarray:
    """Numbers in no order and of few bits, so that no result is rounded."""
    return ((np.arange(60) * factor % 23 - 11).reshape(3, 4, 5) * step + 0.125).astype(np.float32)


@pytest.mark.emulator
@pytest.mark.parametrize("text", FUNCTIONS)
def test_the_executed_dump_of_a_function_is_what_the_device_returned(
    static: Any, paddle: Any, tmp_path: Path, text: str
) -> None:
    """The attributes of an op say what it computes: its axes, shapes, bounds, windows and slopes."""
    feeds = {"x": _eighths(7, 0.25), "y": _eighths(5, 0.5)}
    x, y = (static.data(name, [3, 4, 5], "float32") for name in feeds)
    out = eval(text, {"paddle": paddle, "x": x, "y": y})
    path = str(tmp_path / "model.onnx")
    (returned,) = compiled(paddle, [out], feeds=tuple(feeds), size=3, onnx_dump_path=path).run(**feeds)
    graph = ir.read(path)

    fed = {name: value for name, value in feeds.items() if name in graph.inputs}
    with executable():
        (told,) = interpreter.execute(graph, fed).outputs.values()

    check.identical(actual=told[0, 0, 0].astype(returned.dtype), expected=returned, what=f"the executed dump of {text}")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)], ids=str)
def test_the_dump_gives_the_fetches_in_their_order(static: Any, paddle: Any, tmp_path: Path, order: Any) -> None:
    """The outputs of the dumped model are the fetches, in the order that was asked for."""
    x = static.data("x", [4, 3], "float32")
    made = [paddle.tanh(x), paddle.exp(x), paddle.tanh(paddle.abs(x))]
    fetches = [made[place] for place in order]
    compiled(paddle, fetches, onnx_dump_path=str(tmp_path / "model.onnx"))

    outputs = [output.name for output in loaded(tmp_path / "model.onnx").graph.output]
    check.equal(actual=outputs, expected=[each.name for each in fetches], what="the list of outputs")


def test_a_model_that_is_saved_later_holds_the_trained_weights(net: Net, tmp_path: Path) -> None:
    """``save_model_proto`` copies the weights to the host and writes them."""
    program = net.compile()
    before = net.weights()
    net.executor.run(program, feed={"x": BATCH.reshape(-1, 3)}, fetch_list=[net.loss])
    net.compiled._backend.save_model_proto(str(tmp_path / "trained.onnx"))

    check_weights(loaded(tmp_path / "trained.onnx"), net.weights())
    for name, array in net.weights().items():
        check.differs(actual=array, other=before[name], what=f"{name} after training")


@pytest.mark.emulator
def test_a_path_that_cannot_be_written_is_an_error(net: Net, tmp_path: Path) -> None:
    """The error names the missing folder."""
    with check.raises(ValueError, match="no-folder", what="an onnx_dump_path in a folder that is not there"):
        net.compile(onnx_dump_path=str(tmp_path / "no-folder" / "model.onnx"))


BY_THEN = "MatMul", "MatMulRhsGrad", "SGD0VarUpdate", "IpuCopy"
FORWARD = "MatMul", "Tanh", "ReduceMean"
DRAWN: Dict[str, Tuple[str, Dict[str, Any], Sequence[str], Sequence[int]]] = {
    # Gradients appear with the backward pass, updates before aliasing, and copies between IPUs at the end.
    "Fwd0": ("Fwd0", {}, BY_THEN, [3, 0, 0, 0]),
    "Fwd1": ("Fwd1", {}, BY_THEN, [3, 0, 0, 0]),
    "Bwd0": ("Bwd0", {}, BY_THEN, [3, 3, 0, 0]),
    "PreAlias": ("PreAlias", {}, BY_THEN, [3, 3, 3, 0]),
    "Final": ("Final", {}, BY_THEN, [3, 3, 3, 4]),
    # Each of the three gradients is reduced over replicas, and accumulated, where there are any.
    "1 replica": ("Final", {"replicas": 1}, ["|".join(ALL_REDUCES)], [0]),
    "2 replicas": ("Final", {"replicas": 2}, ["|".join(ALL_REDUCES)], [3]),
    "1 accumulated": ("Final", {"pipelined": False, "accumulation": 1}, ["Accumulate"], [0]),
    "4 accumulated": ("Final", {"pipelined": False, "accumulation": 4}, ["Accumulate"], [3]),
    # Clipping squares each of them for one norm.
    "clipped": ("Final", {"pipelined": False, "clip": True}, ["ReduceSumSquare", "Sqrt"], [3, 1]),
    "not clipped": ("Final", {"pipelined": False}, ["ReduceSumSquare", "Sqrt"], [0, 0]),
    # Ops from first_dot_op to before final_dot_op are drawn.
    "0-10000": ("Fwd0", {"first_dot_op": 0, "final_dot_op": 10000}, FORWARD, [3, 3, 1]),
    "2-10000": ("Fwd0", {"first_dot_op": 2, "final_dot_op": 10000}, FORWARD, [2, 2, 1]),
    "0-3": ("Fwd0", {"first_dot_op": 0, "final_dot_op": 3}, FORWARD, [2, 1, 0]),
    "2-5": ("Fwd0", {"first_dot_op": 2, "final_dot_op": 5}, FORWARD, [2, 1, 0]),
}


@pytest.mark.parametrize("what", DRAWN)
def test_a_drawing_shows_what_the_program_has_by_then(static: Any, paddle: Any, tmp_path: Path, what: str) -> None:
    """Each check is drawn in its own file in the folder ``log_dir``, which is created, with the ops of the moment."""
    dot_check, options, types, expected = DRAWN[what]
    options = dict(options)
    folder = tmp_path / "logs" / "deep"
    Net(static, paddle, clip=options.pop("clip", False)).compile(dot_checks=[dot_check], log_dir=str(folder), **options)

    drawn = {path.name.lower(): path.read_text("utf-8") for path in folder.glob("*")}
    check.equal(actual=list(drawn), expected=[f"{dot_check.lower()}.dot"], what="the list of drawn files")
    (text,) = drawn.values()
    counts = [len(re.findall(rf"\b(?:{type})\b", text)) for type in types]
    check.equal(actual=text[:7], expected="digraph", what="the beginning of the drawn file")
    check.equal(actual=counts, expected=expected, what=f"the numbers of {', '.join(types)} at {dot_check}")


def drawn_on(file: Path, *types: str) -> Dict[str, List[int]]:
    """For each type, the IPUs in whose boxes its ops are drawn."""
    drawn: Dict[str, List[int]] = {type: [] for type in types}
    ipu = -1
    for line in file.read_text("utf-8").splitlines():
        box = re.search(r'label="IPU (\d+)"', line)
        ipu = int(box.group(1)) if box else ipu
        op = re.search(r'label="(\w+)', line)
        if op and op.group(1) in drawn:
            drawn[op.group(1)].append(ipu)
    return {type: sorted(ipus) for type, ipus in drawn.items()}


@pytest.mark.parametrize(("replicas", "accumulation"), [(1, 5), (3, 7)])
def test_a_weight_is_updated_where_it_is_used(net: Net, tmp_path: Path, replicas: int, accumulation: int) -> None:
    """Each of the three gradients is accumulated, reduced and applied on the IPU of its layer."""
    net.compile(replicas=replicas, accumulation=accumulation, dot_checks=["Final"], log_dir=str(tmp_path))
    everywhere = [0, 1, 2]
    expected = {"MatMul": everywhere, "Accumulate": everywhere, "SGD0VarUpdate": everywhere}
    if replicas > 1:
        expected["ReplicatedAllReduceInplace"] = everywhere

    drawn = drawn_on(tmp_path / "final.dot", *expected)
    check.equal(actual=drawn, expected=expected, what="the IPUs of each type of op")


def test_backward_stages_follow_forward_stages(net: Net, tmp_path: Path) -> None:
    """Three forward stages make five: the last computes its own gradients, and the others' follow in reverse."""
    net.compile(dot_checks=["Final"], log_dir=str(tmp_path))

    stages = {int(number) for number in re.findall(r"[Ss]tage (\d+)", (tmp_path / "final.dot").read_text("utf-8"))}
    check.equal(actual=stages, expected={0, 1, 2, 3, 4}, what="the set of drawn stages")


@pytest.mark.parametrize("named", [False, True])
def test_ops_are_drawn_with_their_names_on_request(net: Net, tmp_path: Path, named: bool) -> None:
    """With ``dot_op_names`` the box of an op has a second line, its name."""
    net.compile(dot_checks=["Fwd0"], log_dir=str(tmp_path), dot_op_names=named)

    boxes = re.findall(r'label="(?:MatMul|Tanh|ReduceMean)([^"]*)"', (tmp_path / "fwd0.dot").read_text("utf-8"))

    check.equal(actual=[bool(rest) for rest in boxes], expected=[named] * 7, what="which of the boxes have a name")


@pytest.mark.parametrize(
    ("asked", "drawn"),
    [
        ([], set()),
        (["0", "2"], {"fwd0.dot", "bwd0.dot"}),
        (["1", "3", "4", "Final"], {"fwd1.dot", "prealias.dot", "final.dot"}),
        (["ALL"], {f"{each.lower()}.dot" for each in DOT_CHECKS}),
    ],
    ids=["none", "numbers", "mixed", "all"],
)
def test_checks_are_named_by_number_or_all_at_once(net: Net, tmp_path: Path, asked: List[str], drawn: Set[str]) -> None:
    """A number is the place of a check in PopART's enumeration, ALL stands for every check, and no check for none."""
    net.compile(dot_checks=asked, log_dir=str(tmp_path))

    names = {path.name.lower() for path in tmp_path.iterdir()}
    check.equal(actual=names, expected=drawn, what="the set of drawn files")


def test_an_unknown_check_is_refused(net: Net, tmp_path: Path) -> None:
    """A check that PopART does not have is an error."""
    with check.raises((RuntimeError, ValueError), what="an unknown dot check"):
        net.compile(dot_checks=["Bwd7"], log_dir=str(tmp_path))


@pytest.mark.parametrize("runtime", [False, True])
def test_a_graph_is_drawn_by_paddle(net: Net, paddle: Any, tmp_path: Path, runtime: bool) -> None:
    """``IrGraph.draw`` writes the graph as DOT, and as PDF where Graphviz is; a compiled one has the runtime alone."""
    program = net.compile() if runtime else paddle.static.default_main_program()
    core, framework = paddle.base.core, paddle.base.framework
    graph = framework.IrGraph(core.Graph(program.desc))

    graphviz = shutil.which("dot") is not None
    # Paddle writes the DOT file, then calls Graphviz without asking whether it is there.
    with contextlib.nullcontext() if graphviz else pytest.raises(FileNotFoundError, match="dot"):
        graph.draw(str(tmp_path), "net", set())

    text = (tmp_path / "net.dot").read_text("utf-8")
    drawn = "ipu_runtime" in text, "tanh_grad" in text, (tmp_path / "net.pdf").exists()
    expected = runtime, not runtime, graphviz
    check.equal(actual=drawn, expected=expected, what="whether ipu_runtime and tanh_grad are drawn, and the PDF exists")
