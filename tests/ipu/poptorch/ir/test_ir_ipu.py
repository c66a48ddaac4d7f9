"""The IR dump: its form, names, types, placement, gradients, updates, and the golden graphs of the workload."""

from __future__ import annotations

import functools
import json
from typing import Any, Callable, Iterator, List

import pytest

from ipu_conformance.ir import Graph, checks, diff
from ipu_conformance.ir import read as read_file

from ..on_device import as_model
from ..optim.regression import make
from .dumped import (
    BY_NAME,
    MICRO,
    PARAMETERS,
    SETUPS,
    Setup,
    compiled,
    count,
    inference_graph,
    network,
    options_of,
    plain,
    read,
    types,
)
from .golden import GOLDEN, graph, path

pytestmark = pytest.mark.usefixtures("poptorch")

every_setup = pytest.mark.parametrize("setup", SETUPS, ids=str)
GraphOf = Callable[[Setup], Graph]


@pytest.fixture(scope="module")
def graph_of() -> GraphOf:
    """The graph of the network in a setup; each is compiled once."""
    return functools.lru_cache(maxsize=None)(lambda setup: read(compiled(setup)))


# The form of the dump.


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _scalars(item)
    elif isinstance(value, list):
        for item in value:
            yield from _scalars(item)
    else:
        yield value


def test_the_dump_is_one_main_graph() -> None:
    """The dump is a JSON object with the single key maingraph, a list of ops, without spaces between its tokens."""
    text = compiled(BY_NAME["inference"])._debugGetPopartIR()

    document = json.loads(text)
    assert isinstance(text, str)
    assert list(document) == ["maingraph"]
    assert document["maingraph"]
    assert text == json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def test_an_op_has_five_fields_and_its_scalars_are_strings() -> None:
    """Every op has type, name, inputs, outputs and attributes; numbers are written as strings."""
    ops = json.loads(compiled(BY_NAME["training"])._debugGetPopartIR())["maingraph"]

    assert all(set(op) == {"type", "name", "inputs", "outputs", "attributes"} for op in ops)
    assert all(isinstance(scalar, str) for scalar in _scalars(ops))


def test_inputs_and_outputs_are_numbered() -> None:
    """Inputs carry name, shape, type and their position; outputs their name and position."""
    ops = json.loads(compiled(BY_NAME["inference"])._debugGetPopartIR())["maingraph"]

    for op in ops:
        assert [entry["index"] for entry in op["inputs"]] == [str(place) for place in range(len(op["inputs"]))]
        assert [entry["index"] for entry in op["outputs"]] == [str(place) for place in range(len(op["outputs"]))]
        assert all(set(entry) == {"name", "shape", "type", "index"} for entry in op["inputs"])
        assert all(set(entry) == {"name", "index"} for entry in op["outputs"])


def test_a_shape_is_written_in_brackets() -> None:
    """A shape is written as [2 1 5 5]."""
    ops = json.loads(compiled(BY_NAME["inference"])._debugGetPopartIR())["maingraph"]

    assert next(op for op in ops if op["type"] == "Conv")["inputs"][0]["shape"] == f"[{MICRO} 1 5 5]"


def test_a_model_that_is_not_compiled_has_no_dump(poptorch: Any) -> None:
    """Asking for the dump before compiling is an error."""
    model = poptorch.inferenceModel(network())

    with pytest.raises((poptorch.Error, AssertionError)):
        model._debugGetPopartIR()


# Structure, for every way of running.


@every_setup
def test_shapes_and_types_fit(setup: Setup, graph_of: GraphOf) -> None:
    """What every op makes follows from what it reads."""
    assert checks.shapes(graph_of(setup)) == []


@every_setup
def test_every_op_is_placed(setup: Setup, graph_of: GraphOf) -> None:
    """Every op is on an IPU, in a pipeline also in a stage, and a stage is on one IPU."""
    assert checks.placement(graph_of(setup), stages=setup.mode == "Pipelined") == []


@every_setup
def test_data_flows_to_later_stages(setup: Setup, graph_of: GraphOf) -> None:
    """No op reads what a later stage makes."""
    assert checks.stage_order(graph_of(setup)) == []


@every_setup
def test_values_are_copied_between_ipus(setup: Setup, graph_of: GraphOf) -> None:
    """A value changes its IPU by an IpuCopy only, and no copy stands where none is needed."""
    ir = graph_of(setup)

    assert checks.copies(ir) == []
    assert (count(ir, "IpuCopy") > 0) == (len(set(setup.ipus)) > 1)


@every_setup
def test_gradients_are_reduced_over_replicas(setup: Setup, graph_of: GraphOf) -> None:
    """With replicas every gradient is all-reduced before its update; without, none is."""
    ir = graph_of(setup)

    assert checks.all_reduce(ir, setup.replicas) == []
    assert (count(ir, *checks.ALL_REDUCES) > 0) == (setup.replicas > 1)


@every_setup
def test_the_ipus_are_those_of_the_blocks(setup: Setup, graph_of: GraphOf) -> None:
    """Ops are on the IPUs that the blocks name, and on no other."""
    assert {op.ipu for op in graph_of(setup).ops} == set(setup.ipus)


@every_setup
def test_training_doubles_the_stages_but_one(setup: Setup, graph_of: GraphOf) -> None:
    """A pipeline of F forward stages has the stages 0 to 2F-2 in training and 0 to F-1 in inference."""
    expected = set(range(2 * setup.stages - 1 if setup.training else setup.stages))

    stages = {op.stage for op in graph_of(setup).ops}

    assert stages == (expected if setup.mode == "Pipelined" else {None})


@every_setup
def test_a_tensor_has_the_size_of_a_micro_batch(setup: Setup, graph_of: GraphOf) -> None:
    """The graph is that of one micro-batch, whatever the device iterations, the accumulation and the replicas."""
    conv = next(op for op in graph_of(setup).ops if op.type == "Conv")

    assert graph_of(setup).tensors[conv.inputs[0]].shape == (MICRO, 1, 5, 5)


# Names.


@pytest.mark.parametrize(
    ("type", "name"),
    [
        ("Conv", "layer1/Conv"),
        ("MatMul", "layer2/0/MatMul"),
        ("Relu", "layer2/1/Relu"),
        ("Dropout", "layer2/2/Dropout"),
        ("Nll", "loss/Nll"),
    ],
)
def test_an_op_is_named_after_its_module(type: str, name: str, graph_of: GraphOf) -> None:
    """An op's name is the path of its module, joined by slashes, and its type."""
    names = [op.name for op in graph_of(BY_NAME["training"]).ops if plain(op) == type]

    assert any(each.startswith(name) for each in names)


def test_names_of_modules_can_be_left_out(poptorch: Any) -> None:
    """After disableModuleNamescope no op carries the name of a module."""
    setup = BY_NAME["inference"]
    ir = read(compiled(setup, options=options_of(poptorch, setup).disableModuleNamescope()))

    assert count(ir, "Conv") == 1
    assert not any("layer" in op.name for op in ir.ops)


# Types.


def _layers() -> List[Any]:
    rows = [
        ("Conv2d(3, 4, 3, stride=2, padding=1)", (2, 3, 9, 9), "Conv"),
        ("Conv1d(3, 6, 2, groups=3, dilation=2)", (2, 3, 9), "Conv"),
        ("ConvTranspose2d(3, 4, 3)", (2, 3, 5, 5), "ConvTranspose"),
        ("MaxPool2d(3, 2, 1)", (2, 3, 9, 9), "MaxPool"),
        ("AvgPool2d(2)", (2, 3, 8, 8), "AveragePool"),
        ("AdaptiveAvgPool2d(1)", (2, 3, 8, 8), "GlobalAveragePool"),
        ("Linear(4, 5)", (2, 7, 4), "MatMul"),
        ("BatchNorm2d(3)", (2, 3, 4, 4), "BatchNormalization"),
        ("LayerNorm(4)", (2, 3, 4), "GroupNormalization"),
        ("GroupNorm(2, 4)", (2, 4, 3), "GroupNormalization"),
        ("ReLU()", (2, 3), "Relu"),
        ("LeakyReLU(0.2)", (2, 3), "LeakyRelu"),
        ("ELU()", (2, 3), "Elu"),
        ("GELU()", (2, 3), "Gelu"),
        ("Sigmoid()", (2, 3), "Sigmoid"),
        ("Tanh()", (2, 3), "Tanh"),
        ("Hardtanh()", (2, 3), "Clip"),
        ("Softmax(1)", (2, 3), "Softmax"),
        ("LogSoftmax(1)", (2, 3), "LogSoftmax"),
        ("Flatten()", (2, 3, 4), "Reshape"),
    ]
    return [pytest.param(*row, id=row[0].partition("(")[0]) for row in rows]


@pytest.mark.parametrize(("layer", "shape", "type"), _layers())
def test_a_layer_becomes_an_op_of_its_type(poptorch: Any, torch: Any, layer: str, shape: Any, type: str) -> None:
    """A layer of torch becomes the op that PopART has for it, with fitting shapes."""
    ir = inference_graph(poptorch, eval(f"torch.nn.{layer}", {"torch": torch}).eval(), torch.ones(*shape))

    assert count(ir, type) == 1
    assert checks.shapes(ir) == []


def _functions() -> List[Any]:
    rows = [
        ("x + y", ["Add"]),
        ("x - y", ["Sub"]),
        ("x * 2.5", ["Mul"]),
        ("2 / x", ["Reciprocal", "Mul"]),
        ("x @ y.t()", ["Transpose", "MatMul"]),
        ("torch.exp(-x)", ["Neg", "Exp"]),
        ("x.sum(1)", ["ReduceSum"]),
        ("x.mean(0, keepdim=True)", ["ReduceMean"]),
        ("torch.cat([x, y], 1)", ["Concat"]),
        ("torch.stack([x, y], 1)", ["Reshape", "Reshape", "Concat"]),
        ("x.reshape(4, 3).permute(1, 0)", ["Reshape", "Transpose"]),
        ("x[:, 1]", ["Slice", "Reshape"]),
        ("torch.where(x > y, x, y)", ["Greater", "Where"]),
        ("x.half()", ["Cast"]),
        ("torch.maximum(x, y)", ["Max"]),
        ("x.argmax(1)", ["ArgMax"]),
    ]
    return [pytest.param(text, expected, id=text) for text, expected in rows]


@pytest.mark.parametrize(("text", "expected"), _functions())
def test_a_function_becomes_ops_in_order(poptorch: Any, torch: Any, text: str, expected: List[str]) -> None:
    """Functions of torch become ops in the order of the program, with fitting shapes."""
    model = as_model(lambda model, x, y: (eval(text, {"torch": torch, "x": x, "y": y}), y * 1))
    ir = inference_graph(poptorch, model, torch.ones(2, 6), torch.ones(2, 6))
    rest = iter(types(ir))

    assert all(type in rest for type in expected), types(ir)
    assert checks.shapes(ir) == []


def test_integers_of_64_bits_are_narrowed(graph_of: GraphOf) -> None:
    """Labels of 64 bits are INT32 on the device."""
    ir = graph_of(BY_NAME["training"])
    loss = next(op for op in ir.ops if op.type == "Nll")

    assert ir.tensors[loss.inputs[1]].dtype == "INT32"


def test_a_half_model_computes_in_float16(poptorch: Any, torch: Any) -> None:
    """The product of a model in half precision reads FLOAT16."""
    ir = inference_graph(poptorch, torch.nn.Linear(3, 2).half(), torch.ones(2, 3).half())
    product = next(op for op in ir.ops if op.type == "MatMul")

    assert {ir.tensors[name].dtype for name in product.inputs} == {"FLOAT16"}


def test_dropout_is_gone_in_inference(graph_of: GraphOf) -> None:
    """A model in evaluation mode has no Dropout."""
    assert count(graph_of(BY_NAME["training"]), "Dropout") == 1
    assert count(graph_of(BY_NAME["inference"]), "Dropout") == 0


def test_a_marked_loss_is_an_op(poptorch: Any, torch: Any) -> None:
    """identity_loss is an IdentityLoss with its reduction."""
    model = poptorch.trainingModel(
        as_model(
            lambda model, x: poptorch.identity_loss(model.layer(x) ** 2, reduction="sum"), layer=torch.nn.Linear(3, 3)
        )
    )
    model.compile(torch.ones(2, 3))
    ir = read(model)

    assert [op.attributes["reduction"] for op in ir.ops if op.type == "IdentityLoss"] == ["Sum"]
    assert count(ir, "IdentityLossGrad") == 1


# Gradients and updates.


def test_inference_has_a_forward_pass_only(graph_of: GraphOf) -> None:
    """No op of an inference model is a gradient or an update."""
    assert set(checks.phases(graph_of(BY_NAME["inference"]))) == {checks.FORWARD}


def test_gradients_follow_in_reverse_order(graph_of: GraphOf) -> None:
    """The backward pass begins at the loss and visits the layers from the last to the first."""
    ir = graph_of(BY_NAME["training"])
    scopes = [
        op.name.split("/")[0]
        for op, phase in zip(ir.ops, checks.phases(ir))
        if phase == checks.BACKWARD and op.type.endswith("Grad") and "/" in op.name
    ]

    assert list(dict.fromkeys(scopes)) == ["loss", "layer4", "layer3", "layer2", "layer1"]


def test_the_backward_pass_is_on_the_ipu_of_the_forward_pass(graph_of: GraphOf) -> None:
    """The gradient ops of a layer run where the layer runs, in the stage that mirrors its own."""
    setup = BY_NAME["pipelined-4"]
    for layer, stage in {"layer1": 0, "layer2": 1, "layer3": 2, "layer4": 3}.items():
        ops = [op for op in graph_of(setup).ops if op.name.startswith(layer) and op.type != "IpuCopy"]
        assert {op.ipu for op in ops} == {stage}
        assert {op.stage for op in ops} == {stage, 2 * (setup.stages - 1) - stage}


def test_a_value_used_twice_has_the_sum_of_two_gradients(graph_of: GraphOf) -> None:
    """The gradients of two uses of a value are added."""
    assert count(graph_of(BY_NAME["training"]), "Sum") == 1


OPTIMIZERS = {
    "sgd": ("torch", "SGD", {}, ["SGD0VarUpdate"]),
    "sgd-combined": (
        "poptorch", "SGD", {"momentum": 0.9, "use_combined_accum": True}, ["SGD1AcclUpdate", "SGD1VarUpdate"],
    ),
    "sgd-separate": (
        "poptorch", "SGD", {"momentum": 0.9, "use_combined_accum": False}, ["SGD2PartialAcclUpdate", "SGD2VarUpdate"],
    ),
    "adam": ("torch", "Adam", {}, ["AdamUpdater", "AdamVarUpdate"]),
    "adamw": ("torch", "AdamW", {}, ["AdamUpdater", "AdamVarUpdate"]),
    "lamb": ("poptorch", "LAMB", {}, ["AdamUpdater", "AdamVarUpdate"]),
    "rmsprop": ("torch", "RMSprop", {}, ["RMSPropUpdater", "ScaledVarUpdate"]),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_has_its_ops_for_every_parameter(poptorch: Any, name: str) -> None:
    """Each parameter is updated once, by the ops of the optimizer."""
    package, cls, arguments, expected = OPTIMIZERS[name]
    ir = read(compiled(BY_NAME["training"], make(poptorch, cls, package, **arguments)))

    assert {type: count(ir, type) for type in expected} == dict.fromkeys(expected, PARAMETERS)


def test_a_frozen_parameter_is_not_updated(torch: Any) -> None:
    """A parameter that requires no gradient has neither gradient nor update."""

    def without_first(net: Any) -> Any:
        net.layer1.requires_grad_(False)
        return torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)

    ir = read(compiled(BY_NAME["training"], without_first))

    assert count(ir, "SGD0VarUpdate") == PARAMETERS - 2
    assert count(ir, "ConvWeightsGrad", "ConvDataGrad") == 0


def test_the_input_has_no_gradient(graph_of: GraphOf) -> None:
    """The convolution of the input computes the gradient of its weight and none of the images."""
    ir = graph_of(BY_NAME["training"])

    assert count(ir, "ConvWeightsGrad") == 1
    assert count(ir, "ConvDataGrad") == 0


def test_every_parameter_is_reduced_once(graph_of: GraphOf) -> None:
    """With replicas there is one all-reduce for each parameter."""
    assert count(graph_of(BY_NAME["replicated"]), *checks.ALL_REDUCES) == PARAMETERS


def test_gradients_accumulate_before_they_are_reduced(graph_of: GraphOf) -> None:
    """With accumulation, what is reduced over the replicas is the accumulated gradient."""
    ir = graph_of(BY_NAME["replicated"])
    reduces = [op for op in ir.ops if op.type in checks.ALL_REDUCES]

    assert {ir.producers[op.inputs[0]].type for op in reduces} == {"Accumulate"}


def test_a_border_is_crossed_both_ways(graph_of: GraphOf) -> None:
    """On two IPUs what crosses the border forwards is copied once, and its gradient comes back."""
    ir = graph_of(BY_NAME["pipelined-2"])
    copies = [op for op in ir.ops if op.type == "IpuCopy"]
    ways = [(str(op.attributes["__sourceIpus"]).strip("{ }"), str(op.attributes["__destIpu"])) for op in copies]

    assert sorted(ways) == [("0", "1"), ("0", "1"), ("1", "0"), ("1", "0")]


@pytest.mark.parametrize(("kind", "ipus"), [("Serial", {0}), ("Parallel", {0, 1})])
def test_phases_are_marked(poptorch: Any, torch: Any, kind: str, ipus: Any) -> None:
    """With phased execution an op carries its phase and no stage, and values are copied between IPUs only."""
    names = ("one", "two", "three", "four")

    def forward(model: Any, x: Any) -> Any:
        for name in names:
            with poptorch.Block(name):
                x = torch.tanh(x)
        return x

    phases = [poptorch.Phase(poptorch.Stage(name)) for name in names]
    strategy = getattr(poptorch, f"{kind}PhasedExecution")(phases)
    model = poptorch.inferenceModel(as_model(forward), poptorch.Options().setExecutionStrategy(strategy))
    model.compile(torch.zeros(2, 3))
    ir = read(model)

    assert {op.ipu for op in ir.ops} == ipus
    assert {op.stage for op in ir.ops} == {None}
    assert [op.attributes["__execution_phase"] for op in ir.ops if op.type == "Tanh"] == [0, 1, 2, 3]
    assert checks.copies(ir) == []


def test_nothing_is_recomputed_by_default(graph_of: GraphOf) -> None:
    """Every op says that it is not recomputed."""
    assert {op.attributes["recompute"] for op in graph_of(BY_NAME["pipelined-2"]).ops} == {"NO"}


def test_a_stage_before_the_last_is_recomputed_on_request(poptorch: Any) -> None:
    """With PopART's option for it, the forward ops of all stages but the last are recomputed."""
    setup = BY_NAME["pipelined-2"]
    options = options_of(poptorch, setup)
    options._Popart.set("autoRecomputation", 3)
    ir = read(compiled(setup, options=options))
    recomputed = {op.stage for op in ir.ops if op.attributes["recompute"] == "YES"}

    assert recomputed == {0}


def test_compiling_again_gives_the_same_graph(graph_of: GraphOf) -> None:
    """The dump depends on nothing but the model and its options."""
    setup = BY_NAME["pipelined-4"]

    assert diff(graph_of(setup), read(compiled(setup))) == []


# The workload.


@pytest.mark.parametrize("name", GOLDEN)
def test_the_workload_has_its_golden_graph(name: str) -> None:
    """The graph of the MNIST network is the recorded one."""
    assert [str(difference) for difference in diff(read_file(path(name)), graph(name))] == []
