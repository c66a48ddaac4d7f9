"""One lowering from a forward graph: gradients, names, updates, stages and marks."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import pytest

from ipu_conformance.emulator.popart import gradients
from ipu_conformance.emulator.popart.lowering import Execution, lower
from ipu_conformance.emulator.popart.program import Place, Program
from ipu_conformance.emulator.popart.updates import RULES, Training
from ipu_conformance.ir import Graph, Op, Tensor, checks


def network(ipus: Sequence[int] = (0, 0)) -> Graph:
    """A product in the first stage; in the last, its result times itself is the loss."""
    last = len(ipus) - 1
    program = Program()
    x, w = (program.host_input(Tensor("x", "FLOAT", (2, 3))), program.held(Tensor("w", "FLOAT", (3, 4))))
    (h,) = program.add("MatMul", [x, w], [Tensor("h", "FLOAT", (2, 4))], Place(ipus[0], 0), name="first/MatMul")
    (r,) = program.add("Relu", [h], [Tensor("r", "FLOAT", (2, 4))], Place(ipus[0], 0), name="first/Relu")
    (s,) = program.add("Mul", [r, r], [Tensor("s", "FLOAT", (2, 4))], Place(ipus[last], last), name="last/Mul")
    reduced = {"axes": (0, 1), "keepdims": 0}
    (y,) = program.add("ReduceSum", [s], [Tensor("y", "FLOAT", ())], Place(ipus[last], last), attributes=reduced)
    return program.graph([y])


def trained(rule: str = "sgd0", *, ipus: Sequence[int] = (0, 0), execution: Any = None, **settings: Any) -> Graph:
    """The network as it is trained."""
    made = execution or Execution(stages=len(ipus), pipelined=len(set(ipus)) > 1)
    return lower(network(ipus), made, Training("y", {"w": rule}, **settings))


def rows(graph: Graph, *types: str) -> List[Tuple[str, Tuple[str, ...], Tuple[str, ...]]]:
    """Type, inputs and outputs of every op, or of those of some types."""
    return [(op.type, op.inputs, op.outputs) for op in graph.ops if not types or op.type in types]


def test_gradients_are_named_after_tensors_or_edges() -> None:
    """The gradient of x is Gradient___x; those to be added are named after the op and its input that they pass."""
    graph = trained()
    backward = [row for op, row in zip(graph.ops, rows(graph)) if any("Gradient" in name for name in op.outputs)]

    assert backward == [
        ("ReduceSumGrad", ("Gradient___y",), ("Gradient___s",)),
        ("MulArg0Grad", ("Gradient___s", "r", "s"), ("Gradient___2_0",)),
        ("MulArg1Grad", ("Gradient___s", "r", "s"), ("Gradient___2_1",)),
        ("Sum", ("Gradient___2_0", "Gradient___2_1"), ("Gradient___r",)),
        ("ReluGrad", ("Gradient___r", "r"), ("Gradient___h",)),
        ("MatMulRhsGrad", ("Gradient___h", "x"), ("Gradient___w",)),
    ]


def test_gradient_ops_are_named_after_their_forward_ops() -> None:
    """A gradient op takes the name of its forward op, and a sum is a GradSum."""
    names = {op.type: op.name for op in trained().ops}

    assert (names["ReluGrad"], names["MatMulRhsGrad"]) == ("first/Relu", "first/MatMul")
    assert names["Sum"] == "GradSum_Gradient___r"


@pytest.mark.parametrize(
    ("type", "inputs", "expected"),
    [
        ("Relu", 1, {"ReluGrad": ("dy", "y")}),
        ("LogSoftmax", 1, {"LogSoftmaxGrad": ("dy", "x0")}),
        ("Reciprocal", 1, {"ReciprocalGrad": ("dy", "x0")}),
        ("MaxPool", 1, {"MaxPoolGrad": ("x0", "y", "dy")}),
        ("Softplus", 1, {"SoftPlusGrad": ("dy", "x0")}),
        ("Conv", 3, {"ConvDataGrad": ("x1", "dy"), "ConvWeightsGrad": ("dy", "x0"), "AddBiasBiasGrad": ("dy",)}),
        ("Add", 2, {"AddArg0Grad": ("dy",), "AddArg1Grad": ("dy",)}),
        ("Div", 2, {"DivArg0Grad": ("dy", "x0", "x1", "y"), "DivArg1Grad": ("dy", "x0", "x1", "y")}),
        ("Fmod", 2, {"FmodArg0Grad": ("dy", "x0", "x1", "y")}),
        ("Where", 3, {"WhereXGrad": ("x0", "dy"), "WhereYGrad": ("x0", "dy")}),
        ("BatchNormalization", 5, {"BatchNormalizationGrad": ("x0", "x1", "dy")}),
        ("ArgMax", 1, {}),
    ],
)
def test_a_gradient_op_reads_what_popart_gives_it(type: str, inputs: int, expected: Dict[str, Tuple[str, ...]]) -> None:
    """The type of a gradient op and the order of its inputs are PopART's."""
    program = Program()
    names = [program.held(Tensor(f"x{number}", "FLOAT", (2,))) for number in range(inputs)]
    program.add(type, names, [Tensor("y", "FLOAT", (2,))], Place())

    gradients.backward(program, "y", names, lambda place: place)

    short = {"Gradient___y": "dy"}
    assert {
        op.type: tuple(short.get(name, name) for name in op.inputs) for op in program.ops if op.type != type
    } == expected


def test_every_input_of_a_concatenation_has_a_gradient_op() -> None:
    """A variadic op has as many gradient ops as inputs."""
    program = Program()
    names = [program.held(Tensor(f"x{number}", "FLOAT", (2,))) for number in range(3)]
    program.add("Concat", names, [Tensor("y", "FLOAT", (6,))], Place(), attributes={"axis": 0})

    gradients.backward(program, "y", names, lambda place: place)

    assert [op.outputs for op in program.ops if op.type == "ConcatGrad"] == [(f"Gradient___x{i}",) for i in range(3)]


def test_a_product_and_its_gradients_share_memory_alike() -> None:
    """The share of memory of a product holds for its gradient ops."""
    graph = network()
    ops = [Op(op.type, op.name, op.inputs, op.outputs, {"availableMemoryProportion": 0.3}, op.ipu, op.stage)
           if op.type == "MatMul" else op for op in graph.ops]  # fmt: skip
    shared = Graph(graph.name, ops, graph.inputs, graph.outputs, graph.tensors, graph.initializers)

    lowered = lower(shared, Execution(stages=2), Training("y", {"w": "sgd0"}))

    shares = {op.type: op.attributes.get("availableMemoryProportion") for op in lowered.ops}
    assert {type for type, share in shares.items() if share == 0.3} == {"MatMul", "MatMulRhsGrad"}


@pytest.mark.parametrize(("accumulation", "replicas", "expected"), [
    (1, 1, []),
    (3, 1, ["Accumulate"]),
    (1, 2, ["ReplicatedAllReduce"]),
    (3, 2, ["Accumulate", "ReplicatedAllReduceInplace"]),
])  # fmt: skip
def test_a_gradient_is_accumulated_before_it_is_reduced(accumulation: int, replicas: int, expected: List[str]) -> None:
    """An accumulated gradient is reduced where it is accumulated, any other one on its way to the update."""
    graph = trained(accumulation=accumulation, replicas=replicas)
    found = [op.type for op in graph.ops if op.type == "Accumulate" or op.type in checks.ALL_REDUCES]

    assert found == expected
    assert checks.all_reduce(graph, replicas) == []


def test_one_tensor_is_momentum_and_accumulator() -> None:
    """With combined momentum the gradient is added to it, reduced, and it decays after the update."""
    graph = trained("sgd1", accumulation=3, replicas=2)

    assert rows(graph)[-4:] == [
        ("Accumulate", ("Accl___w", "Gradient___w"), ("AcclIntoReduce___w",)),
        ("ReplicatedAllReduceInplace", ("AcclIntoReduce___w",), ("AcclIntoUpdate___w",)),
        ("SGD1VarUpdate", ("w", "AcclIntoUpdate___w"), ("UpdatedVar___w",)),
        ("SGD1AcclUpdate", ("AcclIntoUpdate___w", "w"), ("AcclOutOfAcclUpdate___w",)),
    ]


def test_lamb_scales_by_two_norms() -> None:
    """The update of LAMB reads the squares of the weight and of its change."""
    graph = trained("lamb")

    assert rows(graph)[-6:] == [
        ("Accumulate", ("Accl1___w", "Gradient___w"), ("Accl1___w__t0",)),
        ("Accumulate", ("Accl2___w", "Gradient___w"), ("Accl2___w__t1",)),
        ("AdamUpdater", ("w", "Accl1___w__t0", "Accl2___w__t1", "Step___w"), ("AdamUpdater___w",)),
        ("LambSquare", ("w",), ("LambR1Sq___w",)),
        ("LambSquare", ("AdamUpdater___w",), ("LambR2Sq___w",)),
        ("AdamVarUpdate", ("w", "AdamUpdater___w", "LambR1Sq___w", "LambR2Sq___w"), ("UpdatedVar___w",)),
    ]
    assert {graph.tensors[name].shape for name in ("Step___w", "LambR1Sq___w", "LambR2Sq___w")} == {()}


@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_sound_in_a_pipeline(rule: str, clip_norm: Any) -> None:
    """Whatever the optimizer, the program of a replicated pipeline passes every check and updates the weight."""
    graph = trained(rule, ipus=(0, 1, 2), accumulation=5, replicas=2, clip_norm=clip_norm)

    assert checks.shapes(graph) == []
    assert checks.placement(graph, stages=clip_norm is None) == []
    assert checks.copies(graph) == []
    assert checks.stage_order(graph) == []
    assert checks.all_reduce(graph, 2) == []
    assert "UpdatedVar___w" in graph.outputs
    assert len([op for op in graph.ops if op.type.endswith("VarUpdate")]) == 1


def test_clipping_limits_the_norm_of_all_gradients() -> None:
    """The factor is the limit divided by the larger one of limit and norm."""
    graph = trained(clip_norm=0.5)
    limit = next(name for name in graph.initializers if name.startswith("clipByNorm"))

    (maximum,), (ratio,) = rows(graph, "Max"), rows(graph, "Div")
    assert maximum[1] == ("globalNorm___0", limit)
    assert ratio[1] == (limit, maximum[2][0])


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_backward_stages_mirror_forward_stages(stages: int) -> None:
    """The backward of stage s is 2(F-1)-s, on the same IPU; the last stage is its own."""
    execution = Execution(stages=stages, pipelined=True)

    assert [execution.behind(Place(stage, stage)) for stage in range(stages)] == [
        Place(stage, 2 * (stages - 1) - stage) for stage in range(stages)
    ]


def test_backward_phases_mirror_forward_phases() -> None:
    """The gradients of phase p of P are in phase 2(P-1)-p, and no op carries a stage."""
    execution = Execution(stages=3, phases=(0, 1, 2))
    graph = trained(ipus=(0, 1, 0), execution=execution)
    phases = {op.type: op.attributes["__execution_phase"] for op in graph.ops}

    assert {phases[type] for type in ("MatMul", "Relu")} == {0}
    assert {phases[type] for type in ("Mul", "MulArg0Grad")} == {2}
    assert {phases[type] for type in ("ReluGrad", "MatMulRhsGrad", "SGD0VarUpdate")} == {4}
    assert {op.stage for op in graph.ops} == {None}


def test_stages_before_the_last_are_recomputed() -> None:
    """With recomputation forward ops of all stages but the last are marked, and gradient ops and copies are not."""
    graph = trained(ipus=(0, 1), execution=Execution(stages=2, pipelined=True, recompute=True))

    assert {op.type for op in graph.ops if op.attributes["recompute"] == "YES"} == {"MatMul", "Relu"}


def test_a_name_that_is_taken_gets_a_number() -> None:
    """Two tensors of one name are told apart."""
    program = Program()

    assert [program.declare(Tensor("x", "FLOAT", ())) for _ in range(3)] == ["x", "x__1", "x__2"]
