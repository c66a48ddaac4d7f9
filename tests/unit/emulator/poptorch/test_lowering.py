"""The lowering of captured models: breadth of the table, generic ops, shared weights, recomputation and estimates."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

import pytest
import torch
import torch.nn.functional as F

from ipu_conformance.emulator.poptorch import api
from ipu_conformance.emulator.poptorch.ir import lowering
from ipu_conformance.ir import Graph, checks

GROUPS: Dict[str, Sequence[str]] = {
    "reductions": (
        "x.sum()", "x.mean((0, 1))", "x.max()", "x.max(1)[0]", "x.min(1)[0]", "x.topk(2)[0]", "x.std()", "x.norm()",
        "x.prod(1)", "x.amax(1)", "x.argmin()", "x.argmax(1, keepdim=True)", "torch.logsumexp(x, 1)", "x.cumsum(1)",
    ),
    "element-wise": (
        "x.clamp(min=0)", "F.relu6(x)", "F.silu(x)", "F.mish(x)", "F.glu(x)", "x ** 0.5", "x.rsqrt()", "1 - x", "1 / x",
        "x.add(y, alpha=2)", "x % 2", "x != y", "(x > y) & (y > x)", "~(x > y)", "x.int() * y", "x.half() + 1",
        "torch.where(x > 0, x, 0.0)", "x.masked_fill(x > 0, 1.5)", "torch.lerp(x, y, 0.3)", "x.clone().mul_(y).relu_()",
        "torch.atan2(x, y)", "torch.maximum(x, y)", "torch.rsub(x, y)",
    ),
    "shapes": (
        "x.view(3, 4)", "x.unsqueeze(0)", "x.t()", "x.mT", "x.swapaxes(0, 1)", "x.expand(3, 2, 6)", "x.repeat(2, 1)",
        "x.chunk(2, 1)[0]", "x.split(2, 1)[1]", "x.unbind(0)[0]", "torch.stack([x, y], 1)", "torch.cat([x, y])",
        "x[:, 1:3]", "x[..., -1]", "x[:, ::2]", "F.pad(x, (1, 1))", "x.flip(1)", "x.narrow(1, 0, 2)",
        "torch.arange(6) + x", "torch.randn_like(x) * x", "torch.tensor([1.0, 2.0]) + x[:, 0]",
    ),
    "products": (
        "x @ y.t()", "x @ y[0]", "torch.bmm(x[None], y.t()[None])", "torch.addmm(x, x @ x.t(), y)",
        "F.conv1d(x.view(1, 2, 6), y.view(3, 2, 2), padding='same')", "F.conv2d(x.view(1, 2, 6), y.view(2, 1, 2, 3))",
        "F.max_pool1d(x.view(1, 2, 6), 2)", "F.adaptive_avg_pool1d(x.view(1, 2, 6), 3)",
        "F.adaptive_avg_pool2d(x.view(1, 1, 2, 6), (2, 4))", "F.layer_norm(x, (6,))", "F.softmax(x, -1)",
        "x.softmax(1, dtype=torch.float16)", "F.group_norm(x.view(1, 2, 6), 2)", "F.linear(x, y)",
        "F.scaled_dot_product_attention(x[None, None], y[None, None], x[None, None])",
    ),
    "losses": (
        "F.mse_loss(x, y)", "F.l1_loss(x, y, reduction='sum')", "F.mse_loss(x, y, reduction='none')",
        "F.cross_entropy(x, (y[:, 0] * 0).long(), reduction='none')", "F.cross_entropy(x, F.softmax(y, 1))",
        "F.nll_loss(F.log_softmax(x, 1), (y[:, 0] * 0).long())", "F.kl_div(x, y, reduction='batchmean')",
        "F.binary_cross_entropy_with_logits(x, torch.sigmoid(y))", "F.triplet_margin_loss(x, y, x)",
    ),
}  # fmt: skip


class Written(torch.nn.Module):
    """Many expressions in one model, all of which the loss depends on."""

    def __init__(self, expressions: Sequence[str]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(2, 6))
        self.expressions = tuple(expressions)

    def forward(self, x: Any, y: Any) -> Any:
        names = {"torch": torch, "F": F, "x": x + self.weight, "y": y}
        values = [eval(expression, names) for expression in self.expressions]
        return api.identity_loss(sum(value.float().sum() for value in values), reduction="none")


def _lowered(model: torch.nn.Module, *inputs: Any, options: Optional[Any] = None) -> Graph:
    executor = api.trainingModel(model, options)
    executor.compile(*inputs)
    return lowering.lower(executor.compiled, executor.options, True)


@pytest.mark.parametrize("group", GROUPS)
def test_operations_are_lowered_with_fitting_shapes(group: str) -> None:
    """Operations of all kinds become a graph that is sound, with a gradient and an update of the weight."""
    graph = _lowered(Written(GROUPS[group]), torch.rand(2, 6), torch.rand(2, 6))

    assert checks.shapes(graph) == []
    assert checks.placement(graph) == []
    assert checks.stage_order(graph) == []
    assert [op.inputs[0] for op in graph.ops if op.type == "SGD0VarUpdate"] == ["weight"]


@pytest.mark.parametrize("group", GROUPS)
def test_estimates_cover_every_operation(group: str) -> None:
    """Cycles and memory are estimated for models with operations that the table does not know."""
    executor = api.inferenceModel(Written(GROUPS[group]))
    executor.compile(torch.rand(2, 6), torch.rand(2, 6))

    assert lowering.cycles(executor.compiled, executor.options) > 0
    assert lowering.memory_of(executor.compiled, executor.options).ipus[0].peak > 0


def test_an_operation_without_a_row_keeps_its_name() -> None:
    """An operation that the table does not know is an op of its own domain, and so is its gradient."""
    graph = _lowered(Written(["torch.cdist(x, y)"]), torch.rand(2, 6), torch.rand(2, 6))

    assert [op.type for op in graph.ops if "::" in op.type] == ["aten::cdist", "aten::cdistGrad"]


class Tied(torch.nn.Module):
    """One weight on two IPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3, bias=False)

    def forward(self, x: Any) -> Any:
        with api.Block("one", ipu_id=0):
            x = torch.tanh(self.layer(x))
        with api.Block("two", ipu_id=1):
            return api.identity_loss(self.layer(x), reduction="sum")


def test_a_weight_of_two_stages_is_copied_and_its_gradients_are_added() -> None:
    """A shared weight lives on its first IPU: it is copied to the second, whose gradient comes back and is added."""
    options = api.Options()
    options.Training.gradientAccumulation(3)

    graph = _lowered(Tied(), torch.rand(6, 3), options=options)

    assert checks.copies(graph) == []
    assert checks.stage_order(graph) == []
    assert next(op.inputs[0] for op in graph.ops if op.type == "IpuCopy") == "layer.weight"
    (total,) = [op for op in graph.ops if op.type == "Sum"]
    (update,) = [op for op in graph.ops if op.type == "SGD0VarUpdate"]
    assert len(total.inputs) == 2
    assert (total.ipu, total.stage, update.ipu, update.stage) == (0, 2, 0, 2)


class Kept(torch.nn.Module):
    """Two stages, the first of which keeps a value."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        with api.Block("one", ipu_id=0):
            x = torch.tanh(api.recomputationCheckpoint(self.layer(x)))
        with api.Block("two", ipu_id=1):
            return api.identity_loss(x * 2, reduction="sum")


def test_a_checkpoint_is_not_recomputed() -> None:
    """With recomputation a kept value is computed once; what stands around it is computed again."""
    options = api.Options()
    options.Training.gradientAccumulation(3)
    options._Popart.set("autoRecomputation", 3)

    graph = _lowered(Kept(), torch.rand(6, 3), options=options)
    first = [op for op in graph.ops if op.stage == 0 and op.type != "IpuCopy"]

    assert {op.type: op.attributes["recompute"] for op in first} == {
        "Transpose": "YES", "MatMul": "YES", "Add": "YES", "Identity": "NO", "Tanh": "YES",
    }  # fmt: skip
