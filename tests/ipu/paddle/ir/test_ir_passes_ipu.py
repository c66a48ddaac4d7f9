"""What each pass does to a program, seen on Paddle's own graph after it."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..compiling import Compiling
from ..device import compiled

SCALE, CANONICAL, INPLACE = "delete_scale_op_pass", "popart_canonicalization_pass", "ipu_inplace_pass"


def traced(paddle: Any, out: Any, **options: Any) -> Compiling:
    """The main program that infers ``out`` from x, on its way through the passes."""
    return Compiling(paddle, ["x"], [out.name], is_training=False, **options)


SHAPES: Dict[str, Tuple[Any, str, str, int, Any]] = {
    **{f"batch-{size}": (None, "float32", "float32", size, size) for size in (1, 4, 7)},
    "batch that is known": (6, "float32", "float32", 4, 6),
    "int64-int32": (None, "int64", "int32", 4, 4),
    "float64-float32": (None, "float64", "float32", 4, 4),
    "int32-int32": (None, "int32", "int32", 4, 4),
    "bool-bool": (None, "bool", "bool", 4, 4),
}
"""The batch and the type of a feed, and what they become for a micro-batch."""


@pytest.mark.parametrize(("batch", "declared", "narrow", "size", "inferred"), SHAPES.values(), ids=list(SHAPES))
def test_a_leading_unknown_becomes_the_micro_batch(
    static: Any, paddle: Any, batch: Any, declared: str, narrow: str, size: int, inferred: int
) -> None:
    """An unknown batch is the micro-batch's, and feeds of 64 bits are narrowed, for all that is computed from them."""
    out = paddle.reshape(paddle.concat([static.data("x", [batch, 3], declared)] * 2, axis=1), [0, 3, 2])

    block = traced(paddle, out, micro_batch_size=size).upto("infer_shape_pass").block

    dtype = paddle.base.framework.convert_np_dtype_to_dtype_(narrow)
    types = [(tuple(block.var(name).shape), block.var(name).dtype) for name in ("x", out.name)]
    expected = [((inferred, 3), dtype), ((inferred, 3, 2), dtype)]
    check.equal(actual=types, expected=expected, what="the shape and dtype of the feed and of what is made of it")


@pytest.mark.parametrize("wide", ["topk", "argsort", "argmax", "assign"])
def test_indices_are_compared_with_labels_that_were_fed(static: Any, paddle: Any, wide: str) -> None:
    """Paddle's 64-bit indices have 32 bits on the device, and so have fed labels: both meet in one op."""
    scores, labels = static.data("scores", [None, 3], "float32"), static.data("labels", [None, 1], "int64")
    indices = {
        "topk": lambda: paddle.topk(scores, 1)[1],
        "argsort": lambda: paddle.argsort(scores, descending=True)[:, :1],
        "argmax": lambda: paddle.unsqueeze(paddle.argmax(scores, axis=1), 1),
        "assign": lambda: paddle.assign(np.array([[1], [0]], np.int64)),
    }[wide]()
    hits = paddle.equal(indices, labels)
    device = compiled(paddle, [hits], feeds=["scores", "labels"], size=2)

    (fetched,) = device.run(np.array([[0, 3, 1], [5, 4, 1]], np.float32), np.array([[1], [2]]))

    check.identical(actual=fetched, expected=[[True], [False]], what="the hit of each sample")


@pytest.mark.parametrize(
    ("scales", "bias", "kept"),
    [([1.0], 0.0, False), ([1.0, 1.0], 0.0, False), ([2.0], 0.0, True), ([1.0], 0.5, True), ([-1.0], 0.0, True)],
    ids=str,
)
def test_a_scale_that_changes_nothing_is_deleted(
    static: Any, paddle: Any, scales: List[float], bias: float, kept: bool
) -> None:
    """Scales by one that add nothing are deleted and their reader reads their input; every other scale stays."""
    first = second = paddle.exp(static.data("x", [None, 3], "float32"))
    for scale in scales:
        second = paddle.scale(second, scale, bias)

    compiling = traced(paddle, paddle.tanh(second)).upto(SCALE)

    check.equal(actual=compiling.types, expected=["exp", *["scale"] * kept, "tanh"], what="the list of ops")
    read = second if kept else first
    check.equal(actual=compiling.only("tanh").input("X"), expected=[read.name], what="tanh's input")


@pytest.mark.parametrize("last", ["infer_shape_pass", SCALE, CANONICAL, INPLACE])
def test_a_variable_is_one_node_for_all_its_readers(static: Any, paddle: Any, last: str) -> None:
    """The graph has one node of a variable that several ops read, from the op that makes it to each of them."""
    x = static.data("x", [None, 3], "float32")
    made = paddle.exp(x)
    out = paddle.add(paddle.multiply(paddle.tanh(made), made), paddle.multiply(x, made))

    graph = paddle.base.framework.IrGraph(traced(paddle, out).upto(last).graph, for_test=True)
    nodes = [node for node in graph.all_var_nodes() if node.name() == made.name]

    readers = [(len(node.inputs), len(node.outputs)) for node in nodes]
    check.equal(actual=readers, expected=[(1, 3)], what=f"the ops that make and read each node of {made.name}")


@pytest.mark.parametrize(
    "last",
    [
        "forward_graph_extract_pass",
        "infer_shape_pass",
        # No document says that the passes behind leave it alone.
        *(pytest.param(name, marks=pytest.mark.emulator) for name in (SCALE, CANONICAL, INPLACE)),
    ],
)
def test_what_computes_the_learning_rate_stays(static: Any, paddle: Any, last: str) -> None:
    """Ops of a schedule are Paddle's own to the end, all of them and in their order."""
    weight = paddle.create_parameter([3], "float32")
    loss = paddle.mean(paddle.multiply(static.data("x", [None, 3], "float32"), weight))
    with static.default_main_program()._lr_schedule_guard():
        rate = paddle.full([1], 4.0)
        for change in (paddle.sqrt, paddle.exp, paddle.tanh):
            rate = change(rate)
    paddle.optimizer.SGD(1.0).minimize(loss)

    types = Compiling(paddle, ["x"], [loss.name], is_training=True).upto(last).types

    schedule = [type for type in types if type in ("fill_constant", "sqrt", "exp", "tanh")]
    check.equal(actual=schedule, expected=["fill_constant", "sqrt", "exp", "tanh"], what=f"the schedule among {types}")


@pytest.mark.parametrize("fetch", ["before", "after", "both"])
def test_what_a_deleted_scale_made_can_be_fetched(static: Any, paddle: Any, fetch: str) -> None:
    """The input and the output of a deleted scale can be fetched, with the same values."""
    before = paddle.square(static.data("x", [None, 3], "float32"))
    after = paddle.scale(before, 1.0)
    fetches = {"before": [before], "after": [after], "both": [before, after]}[fetch]
    batch = np.arange(-6, 6, dtype=np.float32).reshape(4, 3)

    fetched = compiled(paddle, fetches).run(batch)

    check.equal(actual=len(fetched), expected=len(fetches), what="the number of fetches")
    for variable, values in zip(fetches, fetched):
        check.identical(actual=values, expected=batch**2, what=variable.name)


def written_over(static: Any, paddle: Any, which: str) -> Any:
    """A sum of the input and the output of a scale by one, of which one is written over in between."""
    first = paddle.scale(static.data("x", [None, 3], "float32"), 2.0)
    second = paddle.scale(first, 1.0)
    paddle.assign(paddle.scale(first, 3.0), output=first if which == "input" else second)
    return paddle.add(first, paddle.scale(second, 10.0))


@pytest.mark.parametrize("which", ["input", "output"])
def test_a_scale_keeps_what_is_written_over_later(static: Any, paddle: Any, which: str) -> None:
    """A scale by one holds the value that its input had then: neither is written over by who reads the other."""
    batch = np.arange(-6, 6, dtype=np.float32).reshape(4, 3)

    (fetched,) = compiled(paddle, [written_over(static, paddle, which)]).run(batch)

    factor = 6 + 10 * 2 if which == "input" else 2 + 10 * 6
    check.identical(actual=fetched, expected=factor * batch, what="the sum")


@pytest.mark.emulator
@pytest.mark.parametrize("which", ["input", "output"])
def test_a_scale_whose_variables_are_written_over_stays(static: Any, paddle: Any, which: str) -> None:
    """A scale by one is not deleted where its input or its output is written a second time."""
    out = written_over(static, paddle, which)

    compiling = traced(paddle, out).upto(SCALE)

    factors = [op.attr("scale") for op in compiling.block.ops if op.type == "scale"]
    check.equal(actual=factors, expected=[2.0, 1.0, 3.0, 10.0], what="the factors of the scales that are left")


def test_mapped_ops_keep_their_names_and_versions(static: Any, paddle: Any) -> None:
    """An op that the strategy maps passes through under its own name, with the version of its own row."""
    out = paddle.nn.functional.relu(paddle.tanh(paddle.exp(static.data("x", [None, 3], "float32"))))
    compiling = traced(paddle, out)
    for version, op in ((3, "relu"), (5, "exp"), (7, "tanh")):
        compiling.strategy.add_custom_op(op, f"My{op}", "custom.ops", version)

    compiling.upto("infer_shape_pass").apply("popart_canonicalization_pass", custom_ops={"relu", "tanh"})

    check.equal(actual=compiling.types, expected=["popart_exp", "tanh", "relu"], what="the list of ops")
    versions = [compiling.attributes(op)["version"] for op in ("tanh", "relu")]
    check.equal(actual=versions, expected=[7, 3], what="the versions of the mapped ops")


CANONICALS: Dict[str, Any] = {
    "relu": (lambda paddle, x: paddle.nn.functional.relu(x), ["popart_relu"]),
    "gelu": (lambda paddle, x: paddle.nn.functional.gelu(x), ["popart_gelu_v2"]),
    "add": (lambda paddle, x: paddle.add(x, x), ["popart_add"]),
    "rsqrt": (lambda paddle, x: paddle.rsqrt(x), ["popart_sqrt", "popart_reciprocal"]),
    "softmax": (lambda paddle, x: paddle.nn.functional.softmax(x), ["popart_softmax"]),
    "mean": (lambda paddle, x: paddle.mean(x), ["popart_reducemean"]),
    "transpose": (lambda paddle, x: paddle.transpose(x, [1, 0]), ["popart_transpose"]),
    "reshape": (lambda paddle, x: paddle.reshape(x, [-1]), ["popart_constant", "popart_reshape"]),
    "matmul": (lambda paddle, x: paddle.matmul(x, x, transpose_y=True), ["popart_transpose", "popart_matmul"]),
    "not_equal": (lambda paddle, x: paddle.not_equal(x, x), ["popart_equal", "popart_not"]),
    "layer_norm": (lambda paddle, x: paddle.static.nn.layer_norm(x), ["popart_groupnormalization_v2"]),
    "dropout": (lambda paddle, x: paddle.nn.functional.dropout(x, 0.5), ["popart_dropout"]),
    "swish": (lambda paddle, x: paddle.nn.functional.silu(x), ["popart_sigmoid", "popart_mul"]),
    "argmax": (lambda paddle, x: paddle.argmax(x, -1), ["popart_argmax", "popart_cast"]),
    "identity_loss": (lambda paddle, x: paddle.incubate.identity_loss(x, 0), ["popart_identity_loss"]),
}


OWN_WAYS = ("gelu", "not_equal", "layer_norm", "argmax")
"""Ops that handlers of an IPU build write otherwise, or for which no handler was found: the emulator alone is asked."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.emulator] * (name in OWN_WAYS)) for name in CANONICALS]
)
def test_ops_become_those_of_popart(static: Any, paddle: Any, name: str) -> None:
    """Each of Paddle's ops becomes one or more of PopART's; none of Paddle's is left."""
    make, expected = CANONICALS[name]
    out = make(paddle, static.data("x", [None, 3], "float32"))

    types = traced(paddle, out).upto(CANONICAL).types
    check.equal(actual=types, expected=expected, what=f"what {name} becomes")


@pytest.mark.emulator
def test_a_network_becomes_ops_of_popart(static: Any, paddle: Any) -> None:
    """Convolution, pool, norm and loss of a network that is trained are all canonical, the folded optimizer last.

    An IPU build makes the mean part of its loss (``RemoveTailReduction``), so its list is another.
    """
    images, labels = static.data("images", [None, 1, 6, 6], "float32"), static.data("labels", [None, 1], "int64")
    hidden = static.nn.batch_norm(static.nn.conv2d(images, 2, 3, act="relu"))
    scores = static.nn.fc(paddle.nn.functional.max_pool2d(hidden, 2, 2), 5)
    loss = paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(scores, labels))
    paddle.optimizer.Adam(0.1).minimize(loss)
    static.Executor(paddle.CPUPlace()).run(static.default_startup_program())

    types = Compiling(paddle, ["images", "labels"], [loss.name]).upto(CANONICAL).types
    layers = "conv unsqueeze add relu batchnormalization maxpool constant reshape matmul add"
    names = f"{layers} softmax squeeze nllloss_v2 unsqueeze reducemean optimizer".split()

    check.equal(actual=types, expected=[f"popart_{name}" for name in names], what="the list of ops")


def test_attributes_are_those_of_popart(static: Any, paddle: Any) -> None:
    """A convolution's window, strides, pads and groups have PopART's names and forms."""
    images, weights = static.data("images", [None, 4, 6, 7], "float32"), static.data("weights", [6, 2, 3, 2], "float32")
    out = paddle.nn.functional.conv2d(images, weights, stride=[2, 1], padding=[1, 0], dilation=[1, 2], groups=2)

    attributes = Compiling(paddle, ["images", "weights"], [out.name], is_training=False).upto(CANONICAL).attributes
    lists = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0], "dilations": [1, 2]}
    expected = {**lists, "group": 2}

    conv = {name: value for name, value in attributes("popart_conv").items() if name in expected}
    check.equal(actual=conv, expected=expected, what="the table of popart_conv's attributes")


@pytest.mark.parametrize("given", [(0, 0), (2, 1), (1, 4)])
def test_canonical_ops_are_where_their_op_was(static: Any, paddle: Any, given: Any) -> None:
    """The PopART ops of a Paddle op carry its index and stage.

    Casts of mixed precision carry no attributes: each takes index and stage of the op before it (``cast_handler`` of
    Paddle's popart_canonicalization/tensor_ops.cc); a cast of a feed has nothing before it.
    """
    first = paddle.cast(static.data("x", [None, 3], "float32"), "float16")
    with static.ipu_shard_guard(*given):
        made = paddle.rsqrt(first)
    out = paddle.cast(paddle.cast(made, "float32"), "int32")

    compiling = traced(paddle, out).upto(CANONICAL)

    types = [f"popart_{name}" for name in ("cast", "sqrt", "reciprocal", "cast", "cast")]
    check.equal(actual=compiling.types, expected=types, what="the list of ops")
    check.equal(actual=compiling.shards, expected=[(None, None), *[given] * 4], what="the index and stage of each op")


UNKNOWN: Dict[str, Tuple[Callable[[Any, Any], Any], List[str]]] = {
    "lgamma": (lambda paddle, x: paddle.lgamma(x), ["lgamma"]),
    "matrix_power": (
        lambda paddle, x: paddle.linalg.matrix_power(paddle.matmul(x, x, transpose_x=True), 2), ["matrix_power"],
    ),
    "erfinv": (lambda paddle, x: paddle.erfinv(x), ["erfinv"]),
    "kthvalue": (lambda paddle, x: paddle.kthvalue(x, 2)[0], ["kthvalue"]),
    "two": (lambda paddle, x: paddle.lgamma(paddle.erfinv(paddle.lgamma(x))), ["lgamma", "erfinv"]),
}  # fmt: skip


@pytest.mark.parametrize("what", UNKNOWN)
def test_ops_without_a_handler_are_refused(static: Any, paddle: Any, what: str) -> None:
    """The error names every op that an IPU build has no handler for, and each once."""
    ask, names = UNKNOWN[what]
    out = ask(paddle, static.data("x", [None, 3], "float32"))

    match = rf"Found unimplemented op_handler\(s\) for IPU.*{names[0]}"
    with check.raises(NotImplementedError, match=match, what=what) as refusal:
        traced(paddle, out).upto(CANONICAL)
    times = [str(refusal.value).count(name) for name in names]
    check.equal(actual=times, expected=[1] * len(names), what=f"how often {names} are named in {refusal.value}")


def test_a_value_that_is_written_again_is_renamed(static: Any, paddle: Any) -> None:
    """After the pass no two ops write the same name, and later readers read the new one."""
    first = paddle.exp(static.data("x", [None, 3], "float32"))
    second = paddle.tanh(first)
    paddle.assign(paddle.multiply(second, second), output=first)
    out = paddle.add(first, second)
    compiling = traced(paddle, out).upto(CANONICAL)
    before = [name for op in compiling.block.ops for name in op.output("__outputs__")]
    compiling.upto(INPLACE)
    after = [name for op in compiling.block.ops for name in op.output("__outputs__")]
    again = compiling.only("popart_identity").output("__outputs__")[0]
    sums = compiling.only("popart_add").input("__inputs__")

    check.equal(actual=before.count(first.name), expected=2, what=f"how often {first.name} was written before the pass")
    check.equal(actual=sorted(after), expected=sorted(set(after)), what="what the ops write after the pass")
    check.differs(actual=again, other=first.name, what="the name of the value that was written again")
    check.equal(actual=sums, expected=[again, second.name], what="what the sum reads")


def test_statistics_are_renamed_where_they_are_written(static: Any, paddle: Any) -> None:
    """A batch norm reads its running statistics and writes them under names of their own."""
    out = static.nn.batch_norm(static.data("x", [None, 3, 2, 2], "float32"))
    compiling = traced(paddle, out).upto(INPLACE).only("popart_batchnormalization")

    reads, writes = compiling.input("__inputs__"), compiling.output("__outputs__")

    check.equal(actual=len(writes), expected=5, what="the number of values that a batch norm writes")
    check.equal(actual=set(reads) & set(writes), expected=set(), what="what it reads and writes under one name")


@pytest.mark.parametrize(("feeds", "fetches"), [(["x"], 1), (["y", "x"], 2), (["x", "y"], 2)], ids=str)
def test_one_runtime_op_is_left(static: Any, paddle: Any, feeds: List[str], fetches: int) -> None:
    """A compiled program is one ``ipu_runtime`` from the feeds to the fetches, in the order they were given in."""
    x, y = static.data("x", [None, 3], "float32"), static.data("y", [None, 3], "float32")
    outputs = [paddle.tanh(paddle.add(x, y)) if len(feeds) > 1 else paddle.tanh(x), paddle.exp(x)][:fetches]

    ops = compiled(paddle, outputs, feeds=feeds).program.global_block().ops

    check.equal(actual=[op.type for op in ops], expected=["ipu_runtime"], what="the list of ops")
    check.equal(actual=ops[0].input("FeedList"), expected=feeds, what="the FeedList")
    check.equal(actual=ops[0].output("FetchList"), expected=[each.name for each in outputs], what="the FetchList")


PIPELINE = {"is_training": False, "num_ipus": 4, "enable_manual_shard": True, "enable_pipelining": True}
PREDICTORS: Dict[str, Tuple[Dict[str, Any], str]] = {
    "1": ({**PIPELINE, "batches_per_step": 1}, "number of IPUs"),
    "3": ({**PIPELINE, "batches_per_step": 3}, "number of IPUs"),
    "4": ({**PIPELINE, "batches_per_step": 4}, ""),
    "training": ({"is_training": True}, "is_training"),
}


@pytest.mark.parametrize(("options", "match"), PREDICTORS.values(), ids=list(PREDICTORS))
def test_a_predictors_pipeline_has_a_batch_for_each_ipu(static: Any, paddle: Any, options: Any, match: str) -> None:
    """A pipelined inference with fewer batches per step than IPUs is refused, and so is a strategy for training."""
    compiling = Compiling(paddle, ["x"], [paddle.tanh(static.data("x", [None, 3], "float32")).name], **options)

    refusal = check.raises(ValueError, match=match, what=f"a predictor with {options}")
    with refusal if match else contextlib.nullcontext():
        compiling.apply("inference_process_pass")


@pytest.mark.parametrize("half", [False, True])
def test_an_inference_is_transferred_to_float16(static: Any, paddle: Any, half: bool) -> None:
    """With ``enable_fp16`` values and weights are float16 between casts; feeds and fetches stay float32."""
    x = static.data("x", [None, 3], "float32")
    out = paddle.tanh(static.nn.fc(x, 2, weight_attr="weight"))
    compiling = traced(paddle, out, enable_fp16=half)
    compiling.apply("inference_process_pass").upto("avg_shard_pass").apply("inference_dtype_transfer_pass")
    block, types = compiling.block, paddle.base.core.VarDesc.VarType
    ops, casts = ["mul", "elementwise_add", "tanh"], ["cast"] * half
    dtypes = {"x": types.FP32, "weight": types.FP16 if half else types.FP32, out.name: types.FP32}

    check.equal(actual=[op.type for op in block.ops], expected=[*casts, *ops, *casts], what="the list of ops")
    check.equal(actual={name: block.var(name).dtype for name in dtypes}, expected=dtypes, what="the table of dtypes")


def test_a_predictors_feeds_and_fetches_are_put_back(static: Any, paddle: Any) -> None:
    """Every feed and fetch has an op beside the runtime, with its column."""
    x, y = static.data("x", [None, 3], "float32"), static.data("y", [None, 3], "float32")
    out = [paddle.tanh(paddle.add(x, y)), paddle.exp(x)]
    compiling = Compiling(paddle, ["y", "x"], [each.name for each in out], is_training=False)
    compiling.apply("inference_process_pass").upto("ipu_runtime_replacer_pass").apply("inference_postprocess_pass")

    feeds = {op.attr("col"): op.output("Out")[0] for op in compiling.block.ops if op.type == "feed"}
    fetches = {op.attr("col"): op.input("X")[0] for op in compiling.block.ops if op.type == "fetch"}

    compiling.only("ipu_runtime")
    check.equal(actual=feeds, expected={0: "y", 1: "x"}, what="the feed of each column")
    check.equal(actual=fetches, expected={0: out[0].name, 1: out[1].name}, what="the fetch of each column")
