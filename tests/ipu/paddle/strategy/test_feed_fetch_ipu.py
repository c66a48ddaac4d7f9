"""What goes into a run and what comes out: the sizes, the order, the shapes and the types of feeds and fetches."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..exact import COUNTS, Device, counts

MICRO_BATCH = 5
SPLIT = [config for config in COUNTS if config.micro_batches > 1]

training_or_not = pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])


def device(paddle: Any, config: RunConfig, training: bool = False, micro_batch: int = MICRO_BATCH) -> Device:
    """A compiled chain; it trains on sums of gradients, since means over 12 micro-batches are not exact."""
    options: Any = {"training": training, "accumulation_and_replication_reduction_type": 0}
    chosen = exact.strategy(paddle, config, micro_batch=micro_batch, **options)
    return Device(paddle, exact.chain(paddle, training=training), chosen)


@training_or_not
@pytest.mark.parametrize(
    ("config", "nested"),
    [
        *(pytest.param(config, False, id=config.counts_id) for config in COUNTS),
        *(pytest.param(config, True, id=f"nested-{config.counts_id}") for config in SPLIT),
    ],
)
def test_fetches_have_the_reported_shape(
    paddle: Any, static: Any, config: RunConfig, nested: bool, training: bool
) -> None:
    """Replicas, accumulation and batches per step come in front of a micro-batch's shape where they are above 1.

    Flattened, fetches are in the order of the feed: batches per step, accumulation, replica, sample. A feed of
    [n, micro-batch, …] gives what one of [n x micro-batch, …] gives.
    """
    x = exact.samples(config.micro_batches * MICRO_BATCH)
    fed = x.reshape(config.micro_batches, MICRO_BATCH, exact.FEATURES) if nested else x
    out, loss = device(paddle, config, training).run(fed)
    expected = exact.plain_run(x, config, mean=False, rate=exact.RATE if training else 0.0)

    check.shape(actual=out, expected=exact.fetched_shape(config, MICRO_BATCH, exact.FEATURES), what="the output")
    check.shape(actual=loss, expected=exact.fetched_shape(config), what="the loss")
    outputs = out.reshape(expected.outputs.shape)
    check.identical(actual=outputs, expected=expected.outputs, what="the output by micro-batch")
    check.identical(actual=loss.reshape(-1), expected=expected.losses, what="the loss by micro-batch")


@pytest.mark.parametrize("config", SPLIT[-3:], ids=counts_id)
@pytest.mark.parametrize(
    "wrong",
    [
        lambda n: (n * MICRO_BATCH - 1, 2),
        lambda n: (n * MICRO_BATCH + 1, 2),
        lambda n: (MICRO_BATCH, 2),
        lambda n: (n * MICRO_BATCH, 3),
        pytest.param(lambda n: (MICRO_BATCH, n, 2), marks=pytest.mark.emulator),
        pytest.param(lambda n: (n * MICRO_BATCH * 2,), marks=pytest.mark.emulator),
        lambda n: (n + 1, MICRO_BATCH, 2),
    ],
    ids=["one-less", "one-more", "one-micro-batch", "features", "transposed", "flattened", "one-micro-batch-more"],
)
def test_a_feed_of_another_size_is_refused(paddle: Any, static: Any, config: RunConfig, wrong: Any) -> None:
    """A feed holds exactly batches per step x accumulation x replicas micro-batches."""
    compiled = device(paddle, config)

    with check.raises((RuntimeError, ValueError), what="a feed of another size"):
        compiled.run(np.zeros(wrong(config.micro_batches), np.float32))


def test_a_feed_that_is_missing_is_refused(paddle: Any, static: Any) -> None:
    """Every feed that was compiled is needed in every run."""
    compiled = device(paddle, counts())

    with check.raises((RuntimeError, ValueError), what="a run without a feed"):
        compiled.run()


def test_a_declared_batch_stays(paddle: Any, static: Any) -> None:
    """A feed declared with a size keeps it, whatever micro_batch_size says."""
    x = static.data("x", [4, 2], "float32")
    (out,) = exact.inference(paddle, x * 2.0, config=counts(3), micro_batch=7).run(exact.samples(12))

    check.identical(actual=out, expected=exact.samples(12).reshape(3, 4, 2) * 2, what="the output")


NUMBERS = np.array([[1], [3], [6]])
REALS = np.array([[0.1], [-0.7], [1 / 3], [2.0**-30 + 1]])
NARROWED: Dict[str, Tuple[str, Any, Any]] = {
    "int64-int64": ("int64", NUMBERS, np.int32(NUMBERS)),
    "int32-int32": ("int32", np.int32(NUMBERS), np.int32(NUMBERS)),
    "int32-int64": ("int32", NUMBERS, np.int32(NUMBERS)),
    "float64-float32": ("float64", np.float32(NUMBERS), np.float32(NUMBERS)),
    "float32-float32": ("float32", np.float32(NUMBERS), np.float32(NUMBERS)),
    # An int64 beyond 32 bits arrives modulo 2^32.
    **{
        f"{fed}-{arrives}": ("int64", np.array([[fed]]), np.array([[arrives]], np.int32))
        for fed, arrives in ((2**32 + 5, 5), (2**31, -(2**31)), (-(2**33) - 3, -3), (2**31 - 1, 2**31 - 1))
    },
    # The host writes a list in the type of the variable: Python's own numbers arrive as the nearest float32.
    "list": ("float32", REALS.tolist(), np.float32(REALS)),
}
EMULATED: Dict[str, Tuple[str, Any, Any]] = {
    "float64-float64": ("float64", REALS, np.float32(REALS)),
    "float32-float64": ("float32", REALS, np.float32(REALS)),
}
"""PopART itself copies int64 alone (``Devicex::InputDatastream::read``), so only the emulator is asked for float64."""


@pytest.mark.parametrize("numbers", [*NARROWED, *(pytest.param(one, marks=pytest.mark.emulator) for one in EMULATED)])
def test_64_bit_numbers_become_32_bit(paddle: Any, static: Any, numbers: str) -> None:
    """The device has no 64-bit numbers: variables are narrowed, and what is fed to them too; 32 bits are fetched."""
    declared, fed, arrives = {**NARROWED, **EMULATED}[numbers]
    x = static.data("x", [None, 1], declared)
    (out,) = exact.inference(paddle, paddle.concat([x, x], 1), micro_batch=len(fed)).run(fed)

    check.identical(actual=out, expected=np.hstack([arrives, arrives]), what="twice what arrives")


DISCREPANCY = "(?i)type discrep"
REFUSED = [
    pytest.param([None, 1], "float32", "int32", RuntimeError, DISCREPANCY, id="float32-int32"),
    pytest.param([None, 1], "int32", "float32", RuntimeError, DISCREPANCY, id="int32-float32"),
    pytest.param([None, 1], "int32", "bool", RuntimeError, DISCREPANCY, id="int32-bool"),
    pytest.param(
        [0, 1], "float32", "float32", ValueError, "non-positive dimensions", id="no rows", marks=pytest.mark.emulator
    ),
]


@pytest.mark.parametrize(("shape", "declared", "fed", "error", "match"), REFUSED)
def test_an_array_of_another_type_is_refused(
    paddle: Any, static: Any, shape: Any, declared: str, fed: str, error: Any, match: str
) -> None:
    """Numbers are narrowed and not converted: a type of another kind than the device's is an error, and so is nothing.

    PopART's ``Devicex::InputDatastream::read`` says so, and a compiled program's feeds are not checked before it.
    """
    x = static.data("x", shape, declared)
    compiled = exact.inference(paddle, paddle.add(x, x))

    with check.raises(error, match=match, what=f"{fed} that is fed for {declared} of the shape {shape}"):
        compiled.run(np.ones((0 if shape[0] == 0 else 1, 1), fed))


@pytest.mark.parametrize("shape", [[0, 3], [3, 0], [2, 0, 4]], ids=str)
def test_a_constant_without_elements_is_refused(paddle: Any, static: Any, shape: Any) -> None:
    """``fill_constant`` and ``fill_any_like`` write their values out, and refuse to write none (``tensor_ops.cc``)."""
    x = static.data("x", [3, 2], "float32")
    for empty in (paddle.full(shape, 2.0), paddle.full_like(x[3:], 2.0)):
        with check.raises(ValueError, what=f"a constant of the shape {empty.shape}"):
            exact.inference(paddle, x * 2.0, empty)


@pytest.mark.emulator
def test_only_the_leading_dimension_may_be_open(paddle: Any, static: Any) -> None:
    """A feed that is still open after micro_batch_size took its place is refused when the program is compiled."""
    x = static.data("x", [None, -1, 2], "float32")

    with check.raises(ValueError, match=r"feed x has the shape \(3, -1, 2\)", what="an open second dimension"):
        exact.inference(paddle, x * 2.0, micro_batch=3)


@pytest.mark.parametrize("names", [("out",), ("loss",), ("loss", "out"), ("out", "loss", "out")], ids="-".join)
def test_a_run_may_fetch_less_and_in_another_order(paddle: Any, static: Any, names: Tuple[str, ...]) -> None:
    """A run gives what its own fetch_list names, by variable or by name."""
    compiled = device(paddle, counts(3))
    x = exact.samples(15)
    values = dict(zip(("out", "loss"), compiled.run(x)))
    variables = [getattr(compiled.chain, name) for name in names]
    for fetches in (variables, [variable.name for variable in variables]):
        fetched = compiled.executor.run(compiled.program, feed={"x": x}, fetch_list=fetches)

        check.equal(actual=len(fetched), expected=len(names), what="the number of fetches")
        for name, value in zip(names, fetched):
            check.identical(actual=value, expected=values[name], what=name)


@pytest.mark.emulator
def test_what_was_not_compiled_cannot_be_fetched(paddle: Any, static: Any) -> None:
    """A run fetches only what compile was given, in whatever place of the list the rest stands."""
    compiled = device(paddle, counts())
    out, loss = (variable.name for variable in compiled.fetches)
    for fetches in (["w0"], [out, "w0"], [out, loss, "w0"]):
        with check.raises(ValueError, match="was not compiled into the program", what=f"the fetches {fetches}"):
            compiled.executor.run(compiled.program, feed={"x": exact.samples(5)}, fetch_list=fetches)


def test_tensors_come_back_without_return_numpy(paddle: Any, static: Any) -> None:
    """With return_numpy=False a fetch is a tensor of the same values and shape."""
    x = exact.samples(30)
    compiled = device(paddle, counts(3, 1, 2))
    fetches, arrays = compiled.fetches, compiled.run(x)
    tensors = compiled.executor.run(compiled.program, feed={"x": x}, fetch_list=fetches, return_numpy=False)

    check.equal(actual=len(tensors), expected=len(fetches), what="the number of fetches")
    for array, tensor in zip(arrays, tensors):
        check.holds(not isinstance(tensor, np.ndarray), "a fetch without return_numpy is a NumPy array.")
        check.identical(actual=np.array(tensor), expected=array, what="the tensor")


def test_a_feed_may_be_a_tensor_or_a_list(paddle: Any, static: Any) -> None:
    """A tensor, or nested lists, feed what the array of the same values feeds; a list of one feed is that feed."""
    compiled = device(paddle, counts(2))
    x = exact.samples(10)
    tensor = paddle.base.core.LoDTensor()
    tensor.set(x, paddle.CPUPlace())
    feeds = {"x": x}

    with check.raises(TypeError, match="feed requires dict", what="a list of two feeds"):
        compiled.executor.run(compiled.program, feed=[feeds, feeds], fetch_list=compiled.fetches[:1])
    for fed in ({"x": tensor}, {"x": x.tolist()}, [feeds], (feeds,)):
        out = compiled.executor.run(compiled.program, feed=fed, fetch_list=compiled.fetches[:1])[0]
        check.identical(actual=out, expected=compiled.run(x)[0], what="the output")


def test_each_of_four_feeds_is_its_own(paddle: Any, static: Any) -> None:
    """Feeds of one shape and type are not taken for one another, nor for those of another run or micro-batch."""
    names = ("x", "y", "z", "u")
    variables = [static.data(name, [None, 2], "float32") for name in names]
    outs = [variable * factor for variable, factor in zip(variables, (2.0, 4.0, 8.0, 16.0))]
    compiled = exact.inference(paddle, *outs, config=counts(2, 4, 3), feeds=("z", "x", "u", "y"), micro_batch=200)
    for run in range(4):
        fed = {name: exact.samples(4800) + np.float32(4 * run + number) for number, name in enumerate(names)}
        fetched = compiled.run(**fed)

        for name, out, factor in zip(names, fetched, (2, 4, 8, 16)):
            expected = fed[name] * np.float32(factor)
            check.identical(actual=out.reshape(4800, 2), expected=expected, what=f"the output of {name} in run {run}")


def test_a_fetched_feed_comes_back(paddle: Any, static: Any) -> None:
    """A variable that no op writes can be fetched too."""
    x = static.data("x", [None, 2], "float32")
    out, fed = exact.inference(paddle, x * 2.0, x, config=counts(3)).run(exact.samples(3))

    check.identical(actual=fed.reshape(3, 2), expected=exact.samples(3), what="the feed")
    check.identical(actual=out.reshape(3, 2), expected=exact.samples(3) * 2, what="the output")
