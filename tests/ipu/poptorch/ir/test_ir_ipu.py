"""The IR dump: its form, names, types, placement, gradients, updates, and the golden graphs of the workload."""

from __future__ import annotations

import functools
import json
import re
from typing import Any, Callable, Dict, List, Tuple

import pytest

from ipu_conformance import check
from ipu_conformance.ir import Graph, checks
from ipu_conformance.ir import read as read_file

from ..lazily import poptorch, torch
from ..on_device import as_model
from ..optim.regression import make
from .dumped import (
    BY_NAME,
    MICRO,
    PARAMETERS,
    SETUPS,
    SOUND,
    Setup,
    assert_counts,
    assert_sound,
    compiled,
    count,
    inference_graph,
    network,
    options_of,
    plain,
    read,
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


@pytest.fixture
def dump() -> str:
    """The dump of a training model."""
    return str(compiled(BY_NAME["training"])._debugGetPopartIR())


@pytest.fixture
def dumped_ops(dump: str) -> Any:
    """The ops in a dump."""
    return json.loads(dump)["maingraph"]


def test_the_dump_is_one_main_graph(dump: str) -> None:
    """The dump is a JSON object with the single key maingraph, a list of ops, without spaces between its tokens."""
    document = json.loads(dump)
    check.holds(document.get("maingraph"), f"the dump has no main graph, or one without ops: {dump[:100]}.")
    check.equal(actual=list(document), expected=["maingraph"], what="the list of the dump's keys")
    compact = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    check.holds(dump == compact, f"the dump of {len(dump)} characters is not the compact one of {len(compact)}.")


def test_an_op_has_five_fields_and_its_scalars_are_strings(dumped_ops: Any) -> None:
    """Every op has type, name, inputs, outputs and attributes; numbers are written as strings."""
    fields = {"type", "name", "inputs", "outputs", "attributes"}
    for op in dumped_ops:
        check.equal(actual=set(op), expected=fields, what=f"the set of fields of {op['name']}")
        bare = set(re.sub(r'"(\\.|[^"\\])*"', "", json.dumps(op))) - set("{}[],: ")
        check.equal(actual=bare, expected=set(), what=f"the set of characters outside strings in {op['name']}")


def test_inputs_and_outputs_are_numbered(dumped_ops: Any) -> None:
    """Inputs carry name, shape, type and their position; outputs their name and position."""
    for op in dumped_ops:
        for side, fields in {"inputs": {"name", "shape", "type", "index"}, "outputs": {"name", "index"}}.items():
            actual = [(entry["index"], set(entry)) for entry in op[side]]
            expected = [(str(place), fields) for place in range(len(op[side]))]
            check.equal(actual=actual, expected=expected, what=f"the numbering of {op['name']}'s {side}")


def test_a_shape_is_written_in_brackets(dumped_ops: Any) -> None:
    """A shape is written as [2 1 5 5]."""
    shape = next(op for op in dumped_ops if op["type"] == "Conv")["inputs"][0]["shape"]
    check.equal(actual=shape, expected=f"[{MICRO} 1 5 5]", what="the shape of the images")


def test_a_model_that_is_not_compiled_has_no_dump() -> None:
    """Asking for the dump before compiling is an error."""
    model = poptorch.inferenceModel(network())

    with check.raises((poptorch.Error, AssertionError), what="the dump of a model that is not compiled"):
        model._debugGetPopartIR()


# Structure, for every way of running.


@every_setup
@pytest.mark.parametrize("kind", SOUND)
def test_the_graph_is_sound(setup: Setup, kind: str, graph_of: GraphOf) -> None:
    """Shapes follow from what an op reads; an op has an IPU and a stage, reads no later stage, and copies as needed."""
    assert_sound(graph_of(setup), setup, kind)


@every_setup
def test_values_are_copied_between_ipus(setup: Setup, graph_of: GraphOf) -> None:
    """A model on several IPUs copies between them, one on a single IPU does not."""
    copied = count(graph_of(setup), "IpuCopy") > 0
    check.equal(actual=copied, expected=len(set(setup.ipus)) > 1, what=f"whether {setup} copies between IPUs")


@every_setup
def test_gradients_are_reduced_over_replicas(setup: Setup, graph_of: GraphOf) -> None:
    """With replicas the gradient of each parameter is all-reduced once; without, none is."""
    reductions = count(graph_of(setup), *checks.ALL_REDUCES)
    check.equal(actual=reductions, expected=PARAMETERS if setup.replicas > 1 else 0, what="the number of all-reduces")


@every_setup
def test_the_ipus_are_those_of_the_blocks(setup: Setup, graph_of: GraphOf) -> None:
    """Ops are on the IPUs that the blocks name, and on no other."""
    check.equal(actual={op.ipu for op in graph_of(setup).ops}, expected=set(setup.ipus), what="the set of IPUs")


@every_setup
def test_training_doubles_the_stages_but_one(setup: Setup, graph_of: GraphOf) -> None:
    """A pipeline of F forward stages has the stages 0 to 2F-2 in training and 0 to F-1 in inference."""
    stages = set(range(2 * setup.stages - 1 if setup.training else setup.stages))
    expected = stages if setup.mode == "Pipelined" else {None}

    check.equal(actual={op.stage for op in graph_of(setup).ops}, expected=expected, what="the set of the ops' stages")


@every_setup
def test_a_tensor_has_the_size_of_a_micro_batch(setup: Setup, graph_of: GraphOf) -> None:
    """The graph is that of one micro-batch, whatever the device iterations, the accumulation and the replicas."""
    conv = next(op for op in graph_of(setup).ops if op.type == "Conv")

    shape = graph_of(setup).tensors[conv.inputs[0]].shape
    check.equal(actual=shape, expected=(MICRO, 1, 5, 5), what="the shape of the images")


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

    check.holds(any(each.startswith(name) for each in names), f"no name of {names} begins with {name}.")


def test_names_of_modules_can_be_left_out() -> None:
    """After disableModuleNamescope no op carries the name of a module."""
    setup = BY_NAME["inference"]
    ir = read(compiled(setup, options=options_of(poptorch, setup).disableModuleNamescope()))

    assert_counts(ir, Conv=1)
    check.equal(actual=[op.name for op in ir.ops if "layer" in op.name], expected=[], what="the list of scoped names")


# Types.


LAYERS = (
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
)


@pytest.mark.parametrize(("layer", "shape", "type"), LAYERS, ids=[row[0].partition("(")[0] for row in LAYERS])
def test_a_layer_becomes_an_op_of_its_type(layer: str, shape: Any, type: str) -> None:
    """A layer of torch becomes the op that PopART has for it, with fitting shapes."""
    ir = inference_graph(poptorch, eval(f"torch.nn.{layer}", {"torch": torch}).eval(), torch.ones(*shape))

    assert_counts(ir, **{type: 1})
    assert_sound(ir, BY_NAME["inference"])


FUNCTIONS = {
    "x + y": ["Add"],
    "x - y": ["Sub"],
    "x * 2.5": ["Mul"],
    "2 / x": ["Reciprocal", "Mul"],
    "x @ y.t()": ["Transpose", "MatMul"],
    "torch.exp(-x)": ["Neg", "Exp"],
    "x.sum(1)": ["ReduceSum"],
    "x.mean(0, keepdim=True)": ["ReduceMean"],
    "torch.cat([x, y], 1)": ["Concat"],
    "torch.stack([x, y], 1)": ["Reshape", "Reshape", "Concat"],
    "x.reshape(4, 3).permute(1, 0)": ["Reshape", "Transpose"],
    "x[:, 1]": ["Slice", "Reshape"],
    "torch.where(x > y, x, y)": ["Greater", "Where"],
    "x.half()": ["Cast"],
    "torch.maximum(x, y)": ["Max"],
    "x.argmax(1)": ["ArgMax"],
}


@pytest.mark.parametrize("text", FUNCTIONS)
def test_a_function_becomes_ops_in_order(text: str) -> None:
    """Functions of torch become ops in the order of the program, with fitting shapes."""
    model = as_model(lambda model, x, y: (eval(text, {"torch": torch, "x": x, "y": y}), y * 1))
    ir = inference_graph(poptorch, model, torch.ones(2, 6), torch.ones(2, 6))
    types, expected = [plain(op) for op in ir.ops], FUNCTIONS[text]
    rest = iter(types)

    check.holds(all(type in rest for type in expected), f"the ops {types} do not hold {expected} in this order.")
    assert_sound(ir, BY_NAME["inference"])


def test_integers_of_64_bits_are_narrowed(graph_of: GraphOf) -> None:
    """Labels of 64 bits are INT32 on the device."""
    ir = graph_of(BY_NAME["training"])
    loss = next(op for op in ir.ops if op.type == "Nll")

    check.equal(actual=ir.tensors[loss.inputs[1]].dtype, expected="INT32", what="the type of the labels")


def test_a_half_model_computes_in_float16() -> None:
    """The product of a model in half precision reads FLOAT16."""
    ir = inference_graph(poptorch, torch.nn.Linear(3, 2).half(), torch.ones(2, 3).half())
    product = next(op for op in ir.ops if op.type == "MatMul")

    types = {ir.tensors[name].dtype for name in product.inputs}
    check.equal(actual=types, expected={"FLOAT16"}, what="the set of the types that the product reads")


COUNTS: Dict[str, Tuple[str, Dict[str, int]]] = {
    "dropout-in-training": ("training", {"Dropout": 1}),
    "dropout-in-inference": ("inference", {"Dropout": 0}),
    "a-value-used-twice": ("training", {"Sum": 1}),
    "the-input-of-a-convolution": ("training", {"ConvWeightsGrad": 1, "ConvDataGrad": 0}),
}
"""A setup, and how many ops of a type it has."""


@pytest.mark.parametrize("name", COUNTS)
def test_dropout_is_gone_in_inference(name: str, graph_of: GraphOf) -> None:
    """Dropout is for training, the gradients of two uses are added, and the input has no gradient."""
    setup, counts = COUNTS[name]

    assert_counts(graph_of(BY_NAME[setup]), **counts)


def test_a_marked_loss_is_an_op() -> None:
    """identity_loss is an IdentityLoss with its reduction."""

    def forward(model: Any, x: Any) -> Any:
        return poptorch.identity_loss(model.layer(x) ** 2, reduction="sum")

    model = poptorch.trainingModel(as_model(forward, layer=torch.nn.Linear(3, 3)))
    model.compile(torch.ones(2, 3))
    ir = read(model)

    reductions = [op.attributes["reduction"] for op in ir.ops if op.type == "IdentityLoss"]
    check.equal(actual=reductions, expected=["Sum"], what="the list of the losses' reductions")
    assert_counts(ir, IdentityLossGrad=1)


# Gradients and updates.


def test_inference_has_a_forward_pass_only(graph_of: GraphOf) -> None:
    """No op of an inference model is a gradient or an update."""
    phases = set(checks.phases(graph_of(BY_NAME["inference"])))
    check.equal(actual=phases, expected={checks.FORWARD}, what="the set of the phases of inference")


def test_gradients_follow_in_reverse_order(graph_of: GraphOf) -> None:
    """The backward pass begins at the loss and visits the layers from the last to the first."""
    ir = graph_of(BY_NAME["training"])
    scopes = [
        op.name.split("/")[0]
        for op, phase in zip(ir.ops, checks.phases(ir))
        if phase == checks.BACKWARD and op.type.endswith("Grad") and "/" in op.name
    ]

    expected = ["loss", "layer4", "layer3", "layer2", "layer1"]
    check.equal(actual=list(dict.fromkeys(scopes)), expected=expected, what="the order of the backward pass")


def test_the_backward_pass_is_on_the_ipu_of_the_forward_pass(graph_of: GraphOf) -> None:
    """The gradient ops of a layer run where the layer runs, in the stage that mirrors its own."""
    setup = BY_NAME["pipelined-4"]
    for layer, stage in {"layer1": 0, "layer2": 1, "layer3": 2, "layer4": 3}.items():
        ops = [op for op in graph_of(setup).ops if op.name.startswith(layer) and op.type != "IpuCopy"]
        expected = {(stage, stage), (stage, 2 * (setup.stages - 1) - stage)}
        check.equal(actual={(op.ipu, op.stage) for op in ops}, expected=expected, what=f"the place of {layer}'s ops")


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
def test_an_optimizer_has_its_ops_for_every_parameter(name: str) -> None:
    """Each parameter is updated once, by the ops of the optimizer."""
    package, cls, arguments, expected = OPTIMIZERS[name]
    ir = read(compiled(BY_NAME["training"], make(cls, package, **arguments)))

    assert_counts(ir, **dict.fromkeys(expected, PARAMETERS))


def test_a_frozen_parameter_is_not_updated() -> None:
    """A parameter that requires no gradient has neither gradient nor update."""

    def without_first(net: Any) -> Any:
        net.layer1.requires_grad_(False)
        return torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)

    ir = read(compiled(BY_NAME["training"], without_first))

    assert_counts(ir, SGD0VarUpdate=PARAMETERS - 2, ConvWeightsGrad=0, ConvDataGrad=0)


def test_gradients_accumulate_before_they_are_reduced(graph_of: GraphOf) -> None:
    """With accumulation, what is reduced over the replicas is the accumulated gradient."""
    ir = graph_of(BY_NAME["replicated"])
    sources = {ir.producers[op.inputs[0]].type for op in ir.ops if op.type in checks.ALL_REDUCES}

    check.equal(actual=sources, expected={"Accumulate"}, what="the set of the ops whose results are reduced")


def test_a_border_is_crossed_both_ways(graph_of: GraphOf) -> None:
    """On two IPUs what crosses the border forwards is copied once, and its gradient comes back."""
    ir = graph_of(BY_NAME["pipelined-2"])
    copies = [op for op in ir.ops if op.type == "IpuCopy"]
    ways = [(str(op.attributes["__sourceIpus"]).strip("{ }"), str(op.attributes["__destIpu"])) for op in copies]

    check.equal(actual=sorted(ways), expected=[("0", "1")] * 2 + [("1", "0")] * 2, what="the sorted list of copies")


def test_operands_have_one_type() -> None:
    """What is narrower than the other operand is cast before they are added."""
    model = as_model(lambda model, x, y: x + y)
    ir = inference_graph(poptorch, model, torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.float16))

    types = [[ir.tensors[name].dtype for name in op.inputs] for op in ir.ops if op.type == "Add"]
    check.equal(actual=types, expected=[["FLOAT", "FLOAT"]], what="the types of what is added")


NAMES = ("one", "two", "three", "four")


def _in_phases(model: Any, x: Any) -> Any:
    """Four layers, each in a block of its own, and their sum as the loss."""
    for name in NAMES:
        with poptorch.Block(name):
            x = torch.tanh(x * model.weight if name == "one" else x)
            out = poptorch.identity_loss(x.sum(), reduction="none") if name == "four" else x
    return out


def _phases(kind: str) -> Any:
    """Options of an execution in which each block has a phase of its own."""
    phases = [poptorch.Phase(poptorch.Stage(name)) for name in NAMES]
    return poptorch.Options().setExecutionStrategy(getattr(poptorch, f"{kind}PhasedExecution")(phases))


def _phases_of(ir: Graph, *types: str) -> Dict[str, List[Any]]:
    """The phases of the ops of each type."""
    return {type: [op.attributes["__execution_phase"] for op in ir.ops if plain(op) == type] for type in types}


@pytest.mark.parametrize(("kind", "ipus"), [("Serial", {0}), ("Parallel", {0, 1})])
def test_phases_are_marked(kind: str, ipus: Any) -> None:
    """With phased execution an op carries its phase and no stage, and values are copied between IPUs only."""
    model = as_model(_in_phases, weight=torch.nn.Parameter(torch.ones(3)))
    ir = inference_graph(poptorch, model, torch.zeros(2, 3), options=_phases(kind))

    places = {(op.ipu, op.stage) for op in ir.ops}
    check.equal(actual=places, expected={(ipu, None) for ipu in ipus}, what="the set of the ops' IPUs and stages")
    check.equal(actual=_phases_of(ir, "Tanh"), expected={"Tanh": [0, 1, 2, 3]}, what="the phase of each of four layers")
    assert_sound(ir, BY_NAME["inference"], "copies")


def test_the_phases_of_the_backward_pass_mirror_those_of_the_forward_pass() -> None:
    """Of four phases the last turns back in itself, and the gradients of the others are in three more."""
    model = as_model(_in_phases, weight=torch.nn.Parameter(torch.ones(3)))
    trainer = poptorch.trainingModel(model, _phases("Serial"), torch.optim.SGD(model.parameters(), lr=0.5))
    trainer.compile(torch.zeros(2, 3))

    expected = {"Tanh": [0, 1, 2, 3], "TanhGrad": [3, 4, 5, 6]}
    actual = _phases_of(read(trainer), *expected)
    check.equal(actual=actual, expected=expected, what="the phases of layers and of their gradients")


def test_every_gradient_is_clipped_by_one_factor() -> None:
    """With max_grad_norm the squares of all gradients make one factor, and every update reads a product with it."""
    ir = read(compiled(BY_NAME["accumulating"], make("SGD", max_grad_norm=0.5)))
    made_by = {name: op for op in ir.ops for name in op.outputs}
    products = [made_by[op.inputs[1]] for op in ir.ops if plain(op) == "SGD0VarUpdate"]

    assert_counts(ir, ReduceSumSquare=PARAMETERS, SGD0VarUpdate=PARAMETERS)
    check.equal(actual={plain(op) for op in products}, expected={"Mul"}, what="the types of ops whose results update")
    factors = {op.inputs[1] for op in products}
    check.equal(actual=len(factors), expected=1, what="the number of factors of all gradients")
    limits = {name for op in ir.ops if plain(op) == "Div" for name in op.outputs}
    check.holds(factors <= limits, f"the factor {factors} is not what a division made: {limits}.")


def test_nothing_is_recomputed_by_default(graph_of: GraphOf) -> None:
    """Every op says that it is not recomputed."""
    answers = {op.attributes["recompute"] for op in graph_of(BY_NAME["pipelined-2"]).ops}
    check.equal(actual=answers, expected={"NO"}, what="the set of the ops' recompute attributes")


def test_a_stage_before_the_last_is_recomputed_on_request() -> None:
    """With PopART's option for it, the forward ops of all stages but the last are recomputed."""
    setup = BY_NAME["pipelined-2"]
    options = options_of(poptorch, setup)
    options._Popart.set("autoRecomputation", 3)
    ir = read(compiled(setup, options=options))
    recomputed = {op.stage for op in ir.ops if op.attributes["recompute"] == "YES"}

    check.equal(actual=recomputed, expected={0}, what="the set of the stages that are recomputed")


def test_compiling_again_gives_the_same_graph(graph_of: GraphOf) -> None:
    """The dump depends on nothing but the model and its options."""
    setup = BY_NAME["pipelined-4"]

    check.ir_equal(actual=read(compiled(setup)), expected=graph_of(setup))


# The workload.


@pytest.mark.emulator
@pytest.mark.parametrize("name", GOLDEN)
def test_the_workload_has_its_golden_graph(name: str) -> None:
    """The graph of the MNIST network is the recorded one, which pins the emulator."""
    check.ir_equal(actual=graph(name), expected=read_file(path(name)))
