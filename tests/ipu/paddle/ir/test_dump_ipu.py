"""What a compiler writes to files: the model as ONNX, and drawings of its IR."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple

import numpy as np
import pytest

from ipu_conformance.ir.checks import ALL_REDUCES

CHECKS = ("Fwd0", "Fwd1", "Bwd0", "PreAlias", "Final")
MICRO_BATCH = 2


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """No case sees a variable of the machine it runs on."""
    monkeypatch.delenv("IPU_ONNX_DUMP_PATH", raising=False)


class Net:
    """Three layers, each in a shard of its own, trained by SGD."""

    def __init__(self, static: Any, paddle: Any, *, clip: bool = False) -> None:
        self.static, self.paddle = static, paddle
        made = static.data("x", [None, 3], "float32")
        for number, (index, stage) in enumerate([(1, 0), (0, 1), (2, 2)]):
            with static.ipu_shard_guard(index, stage):
                made = paddle.tanh(static.nn.fc(made, 4 + number, weight_attr=f"w{number}", bias_attr=False))
        with static.ipu_shard_guard(2, 2):
            self.loss = paddle.mean(made)
        norm = paddle.nn.ClipGradByGlobalNorm(0.5) if clip else None
        paddle.optimizer.SGD(0.5, grad_clip=norm).minimize(self.loss)
        self.executor = static.Executor(paddle.CPUPlace())
        self.executor.run(static.default_startup_program())
        self.options: Dict[str, Any] = {}

    def compile(self, *, pipelined: bool = True, replicas: int = 1, accumulation: int = 5, **options: Any) -> Any:
        """The compiled program; without a pipeline all is on one IPU."""
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
        scope = self.static.global_scope()
        return {name: np.array(scope.find_var(name).get_tensor()) for name in ("w0", "w1", "w2")}


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


def values(model: Any) -> Dict[str, np.ndarray]:
    """The weights of a model."""
    from onnx import numpy_helper

    return {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}


def placement(model: Any) -> List[Tuple[str, Any, Any]]:
    """Type, IPU and stage of every op of a model."""
    found = []
    for node in model.graph.node:
        held = {each.name: each.i for each in node.attribute}
        found.append((node.op_type, held.get("__ipu_number"), held.get("__pipeline_stage")))
    return found


def test_the_dumped_model_is_valid_onnx(net: Net, tmp_path: Path) -> None:
    """``onnx_dump_path`` writes the forward pass, which onnx.checker accepts, from the feeds to the fetches."""
    net.compile(onnx_dump_path=str(tmp_path / "model.onnx"))

    graph = loaded(tmp_path / "model.onnx").graph

    assert [each.name for each in graph.input] == ["x"]
    assert [each.name for each in graph.output] == [net.loss.name]
    assert [node.op_type for node in graph.node] == ["MatMul", "Tanh"] * 3 + ["ReduceMean"]


def test_the_dumped_model_has_fixed_shapes_and_types(net: Net, tmp_path: Path) -> None:
    """The micro-batch stands in the dumped input's shape."""
    net.compile(onnx_dump_path=str(tmp_path / "model.onnx"))

    kind = loaded(tmp_path / "model.onnx").graph.input[0].type.tensor_type

    assert [dim.dim_value for dim in kind.shape.dim] == [MICRO_BATCH, 3]
    assert kind.elem_type == 1


def test_the_dumped_model_holds_the_weights(net: Net, tmp_path: Path) -> None:
    """The weights of the dump are bit for bit those in the scope when the program was compiled."""
    expected = net.weights()

    net.compile(onnx_dump_path=str(tmp_path / "model.onnx"))

    found = values(loaded(tmp_path / "model.onnx"))
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_the_dumped_model_is_placed(net: Net, tmp_path: Path) -> None:
    """Every op of the dump bears the IPU and the stage of its guard."""
    net.compile(onnx_dump_path=str(tmp_path / "model.onnx"))

    assert placement(loaded(tmp_path / "model.onnx")) == [
        ("MatMul", 1, 0),
        ("Tanh", 1, 0),
        ("MatMul", 0, 1),
        ("Tanh", 0, 1),
        ("MatMul", 2, 2),
        ("Tanh", 2, 2),
        ("ReduceMean", 2, 2),
    ]


def test_without_manual_shards_all_is_on_the_first_ipu(net: Net, tmp_path: Path) -> None:
    """Guards count for nothing where graphs are not sharded by hand, and there are no stages without a pipeline."""
    net.compile(pipelined=False, onnx_dump_path=str(tmp_path / "model.onnx"))

    assert {(ipu, stage) for _, ipu, stage in placement(loaded(tmp_path / "model.onnx"))} == {(0, None)}


def test_the_dumped_model_computes_the_loss(net: Net, tmp_path: Path) -> None:
    """The dump, evaluated by ONNX's own reference, gives the loss of the device for each micro-batch."""
    from onnx.reference import ReferenceEvaluator

    program = net.compile(pipelined=False, onnx_dump_path=str(tmp_path / "model.onnx"))
    batch = np.linspace(-1, 1, 5 * MICRO_BATCH * 3, dtype=np.float32).reshape(5, MICRO_BATCH, 3)
    found = net.executor.run(program, feed={"x": batch.reshape(-1, 3)}, fetch_list=[net.loss])[0]

    model = loaded(tmp_path / "model.onnx")
    for node in model.graph.node:  # the reference takes no attributes that ONNX does not define
        kept = [each for each in node.attribute if not each.name.startswith("__")]
        del node.attribute[:]
        node.attribute.extend(kept)
    reference = ReferenceEvaluator(model)
    expected = [reference.run(None, {"x": each})[0] for each in batch]

    # Products of at most 6 terms, tanh of values below 1, and a mean of 12: each sums or rounds at most that often.
    allowed = 3 * (6 + 2) * float(np.finfo(np.float32).eps) + 12 * float(np.finfo(np.float32).eps)
    assert found.shape == (5, 1)
    np.testing.assert_allclose(found[:, 0], expected, rtol=0, atol=allowed)


def test_a_model_that_is_saved_later_holds_the_trained_weights(net: Net, tmp_path: Path) -> None:
    """``save_model_proto`` brings the weights home and writes those."""
    program = net.compile()
    before = net.weights()
    batch = np.linspace(-1, 1, 5 * MICRO_BATCH * 3, dtype=np.float32).reshape(-1, 3)
    net.executor.run(program, feed={"x": batch}, fetch_list=[net.loss])

    net.compiled._backend.save_model_proto(str(tmp_path / "trained.onnx"))

    found, after = values(loaded(tmp_path / "trained.onnx")), net.weights()
    assert sorted(found) == sorted(after)
    for name, array in after.items():
        np.testing.assert_array_equal(found[name], array)
        assert (array != before[name]).any()


def test_a_path_that_cannot_be_written_is_an_error(net: Net, tmp_path: Path) -> None:
    """A folder that is not there is named."""
    with pytest.raises(ValueError, match="no-folder"):
        net.compile(onnx_dump_path=str(tmp_path / "no-folder" / "model.onnx"))


def counts(path: Path, *types: str) -> List[int]:
    """How often each type of ops is drawn."""
    text = path.read_text("utf-8")
    return [len(re.findall(rf"\b{type}\b", text)) for type in types]


@pytest.mark.parametrize("check", CHECKS)
def test_the_ir_is_drawn_at_a_check(net: Net, tmp_path: Path, check: str) -> None:
    """Each check has a drawing of its own in the folder ``log_dir``, which is made, and nothing else is drawn."""
    net.compile(dot_checks=[check], log_dir=str(tmp_path / "logs" / "deep"))

    drawn = list((tmp_path / "logs" / "deep").iterdir())

    assert [path.name.lower() for path in drawn] == [f"{check.lower()}.dot"]
    assert drawn[0].read_text("utf-8").startswith("digraph")


@pytest.mark.parametrize(
    ("check", "expected"),
    [("Fwd0", [3, 0, 0, 0]), ("Fwd1", [3, 0, 0, 0]), ("Bwd0", [3, 3, 0, 0]), ("PreAlias", [3, 3, 3, 0]),
     ("Final", [3, 3, 3, 4])],
)  # fmt: skip
def test_a_drawing_shows_what_the_program_has_by_then(
    net: Net, tmp_path: Path, check: str, expected: List[int]
) -> None:
    """Gradients come with the backward pass, updates before aliasing, and copies between IPUs in the end."""
    net.compile(dot_checks=[check], log_dir=str(tmp_path))

    found = counts(tmp_path / f"{check.lower()}.dot", "MatMul", "MatMulRhsGrad", "SGD0VarUpdate", "IpuCopy")

    assert found == expected


@pytest.mark.parametrize("replicas", [1, 2])
def test_gradients_are_reduced_over_replicas(net: Net, tmp_path: Path, replicas: int) -> None:
    """With replicas each of the three gradients passes an all-reduce; with one none does."""
    net.compile(replicas=replicas, dot_checks=["Final"], log_dir=str(tmp_path))

    assert sum(counts(tmp_path / "final.dot", *ALL_REDUCES)) == (3 if replicas > 1 else 0)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_gradients_are_accumulated(net: Net, tmp_path: Path, accumulation: int) -> None:
    """With accumulation each of the three gradients is accumulated; without none is."""
    net.compile(pipelined=False, accumulation=accumulation, dot_checks=["Final"], log_dir=str(tmp_path))

    assert counts(tmp_path / "final.dot", "Accumulate") == [3 if accumulation > 1 else 0]


@pytest.mark.parametrize("clip", [False, True])
def test_gradients_are_clipped(static: Any, paddle: Any, tmp_path: Path, clip: bool) -> None:
    """Clipping squares each of the three gradients for one norm."""
    Net(static, paddle, clip=clip).compile(pipelined=False, dot_checks=["Final"], log_dir=str(tmp_path))

    assert counts(tmp_path / "final.dot", "ReduceSumSquare", "Sqrt") == ([3, 1] if clip else [0, 0])


def test_backward_stages_follow_forward_stages(net: Net, tmp_path: Path) -> None:
    """Three forward stages make five: the last computes its own gradients, and the others' follow in reverse."""
    net.compile(dot_checks=["Final"], log_dir=str(tmp_path))

    text = (tmp_path / "final.dot").read_text("utf-8")

    assert sorted({int(number) for number in re.findall(r"[Ss]tage (\d+)", text)}) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("first", "final", "ops"), [(0, 10000, 7), (2, 10000, 5), (0, 3, 3), (2, 5, 3)])
def test_a_part_of_the_program_is_drawn(net: Net, tmp_path: Path, first: int, final: int, ops: int) -> None:
    """Ops from ``first_dot_op`` to before ``final_dot_op`` are drawn."""
    net.compile(dot_checks=["Fwd0"], log_dir=str(tmp_path), first_dot_op=first, final_dot_op=final)

    assert sum(counts(tmp_path / "fwd0.dot", "MatMul", "Tanh", "ReduceMean")) == ops


@pytest.mark.parametrize("named", [False, True])
def test_ops_are_drawn_with_their_names_on_request(net: Net, tmp_path: Path, named: bool) -> None:
    """With ``dot_op_names`` the box of an op has a second line, its name."""
    net.compile(dot_checks=["Fwd0"], log_dir=str(tmp_path), dot_op_names=named)

    boxes = re.findall(r'label="(?:MatMul|Tanh|ReduceMean)([^"]*)"', (tmp_path / "fwd0.dot").read_text("utf-8"))

    assert len(boxes) == 7
    assert [bool(rest) for rest in boxes] == [named] * 7


@pytest.mark.parametrize(
    ("asked", "drawn"),
    [
        (["0", "2"], {"fwd0.dot", "bwd0.dot"}),
        (["1", "3", "4", "Final"], {"fwd1.dot", "prealias.dot", "final.dot"}),
        (["ALL"], {f"{check.lower()}.dot" for check in CHECKS}),
    ],
    ids=["numbers", "mixed", "all"],
)
def test_checks_are_named_by_number_or_all_at_once(net: Net, tmp_path: Path, asked: List[str], drawn: Set[str]) -> None:
    """A number is the place of a check in PopART's enumeration, and ALL stands for every check."""
    net.compile(dot_checks=asked, log_dir=str(tmp_path))

    assert {path.name.lower() for path in tmp_path.iterdir()} == drawn


def test_nothing_is_drawn_unasked(net: Net, tmp_path: Path) -> None:
    """Without checks the folder stays empty."""
    net.compile(log_dir=str(tmp_path))

    assert list(tmp_path.iterdir()) == []


def test_an_unknown_check_is_refused(net: Net, tmp_path: Path) -> None:
    """The error names the check."""
    with pytest.raises(ValueError, match="Bwd7"):
        net.compile(dot_checks=["Bwd7"], log_dir=str(tmp_path))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_graph_is_drawn_by_paddle(net: Net, paddle: Any, tmp_path: Path, compiled: bool) -> None:
    """``IrGraph.draw`` writes the graph as DOT, and as PDF where Graphviz is; a compiled one has the runtime alone."""
    program = net.compile() if compiled else paddle.static.default_main_program()
    core, framework = paddle.base.core, paddle.base.framework
    graph = framework.IrGraph(core.Graph(program.desc))

    graphviz = shutil.which("dot") is not None
    # Paddle writes the DOT file, then calls Graphviz without asking whether it is there.
    with contextlib.nullcontext() if graphviz else pytest.raises(FileNotFoundError, match="dot"):
        graph.draw(str(tmp_path), "net", set())

    text = (tmp_path / "net.dot").read_text("utf-8")
    assert ("ipu_runtime" in text, "tanh_grad" in text) == (compiled, not compiled)
    assert (tmp_path / "net.pdf").exists() == graphviz
