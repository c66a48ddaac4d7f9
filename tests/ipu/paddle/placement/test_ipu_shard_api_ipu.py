"""The index and stage that ops carry: ``ipu_shard_guard`` and ``set_ipu_shard``."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import pytest

from ipu_conformance import check

from ..compiling import Shard, shard

pytestmark = pytest.mark.usefixtures("ipu_build")

SHARDS = "the index and stage of each op"
NONE: Shard = (None, None)


def shards(static: Any) -> List[Shard]:
    """The index and stage of each op of the main program."""
    return [shard(op) for op in static.default_main_program().global_block().ops]


def data(static: Any) -> Any:
    """A fed variable, which is not an op."""
    return static.data("x", [4, 3], "float32")


GUARDS: Dict[str, Tuple[List[Dict[str, int]], List[Shard]]] = {
    "empty": ([{}], [NONE]),
    "index-0": ([{"index": 0}], [(0, None)]),
    "index-3": ([{"index": 3}], [(3, None)]),
    "stage-0": ([{"stage": 0}], [(None, 0)]),
    "stage-5": ([{"stage": 5}], [(None, 5)]),
    "both": ([{"index": 2, "stage": 7}], [(2, 7)]),
    "zeros": ([{"index": 0, "stage": 0}], [(0, 0)]),
    "index-below-0": ([{"index": -1, "stage": 4}], [(None, 4)]),
    "stage-below-0": ([{"index": 4, "stage": -1}], [(4, None)]),
    "below-0": ([{"index": -3, "stage": -2}], [NONE]),
    "both-in-both": ([{"index": 1, "stage": 2}, {"index": 3, "stage": 4}], [(1, 2), (3, 4)]),
    "index-in-both": ([{"index": 1, "stage": 2}, {"index": 3}], [(1, 2), (3, None)]),
    "stage-in-both": ([{"index": 1, "stage": 2}, {"stage": 4}], [(1, 2), (None, 4)]),
    "empty-in-both": ([{"index": 1, "stage": 2}, {}], [(1, 2), NONE]),
    "stage-in-index": ([{"index": 1}, {"stage": 4}], [(1, None), (None, 4)]),
    "both-in-empty": ([{}, {"index": 3, "stage": 4}], [NONE, (3, 4)]),
    "five-deep": ([{"index": at, "stage": 10 + at} for at in range(5)], [(at, 10 + at) for at in range(5)]),
}


@pytest.mark.parametrize(("guards", "levels"), GUARDS.values(), ids=list(GUARDS))
def test_ops_bear_what_their_guard_says(static: Any, guards: Any, levels: List[Shard]) -> None:
    """An index or a stage is written on every op of the block if it is 0 or more, and on no op outside.

    What an inner guard leaves out is not taken from the outer one, which counts again afterwards.
    """

    def nest(value: Any, guards: Any) -> Any:
        value = value + 1.0
        if guards:
            with static.ipu_shard_guard(**guards[0]):
                value = nest(value, guards[1:])
        return value * 2.0

    nest(data(static), guards)

    check.equal(actual=shards(static), expected=[NONE, *levels, *levels[::-1], NONE], what=SHARDS)


def test_an_error_leaves_the_guard(static: Any) -> None:
    """After an exception inside the block, ops carry what they carried before it."""
    x = data(static)
    with static.ipu_shard_guard(index=1, stage=1):
        with pytest.raises(ZeroDivisionError), static.ipu_shard_guard(index=2, stage=2):
            raise ZeroDivisionError
        y = x + 1.0
    y.exp()

    check.equal(actual=shards(static), expected=[(1, 1), (None, None)], what=SHARDS)


def test_parameters_of_a_guarded_layer_are_made_by_guarded_ops(static: Any) -> None:
    """The ops that initialise a layer's parameters carry the guard's values as well."""
    x = data(static)
    with static.ipu_shard_guard(index=2, stage=3):
        static.nn.fc(x, 5)
    startup = {shard(op) for op in static.default_startup_program().global_block().ops}

    check.equal(actual=startup, expected={(2, 3)}, what="the set of shards of the startup program")
    check.equal(actual=set(shards(static)), expected={(2, 3)}, what="the set of shards of the main program")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"index": 1, "stage": 2}, (1, 2)), ({"index": 1}, (1, None)), ({"stage": 2}, (None, 2)), ({}, NONE)],
    ids=str,
)
def test_a_function_is_wrapped(static: Any, arguments: Any, expected: Shard) -> None:
    """A wrapped function's ops carry the values; the function does not change; arguments and results pass through."""

    def scaled(value: Any, factor: float, *, shift: float = 0.0) -> Tuple[Any, float]:
        return value * factor + shift, factor + shift

    x = data(static)
    wrapped = static.set_ipu_shard(scaled, **arguments)
    result, total = wrapped(x, 2.0, shift=3.0)
    number = len(shards(static))
    scaled(result, 2.0)
    wrapped_ops, plain_ops = set(shards(static)[:number]), set(shards(static)[number:])

    check.equal(actual=total, expected=5.0, what="the second result of the wrapped function")
    check.equal(actual=wrapped_ops, expected={expected}, what="the set of shards of the wrapped function's ops")
    check.equal(actual=plain_ops, expected={(None, None)}, what="the set of shards of the function's own ops")


def test_a_layer_is_changed_in_place(static: Any, paddle: Any) -> None:
    """set_ipu_shard returns the same layer with the same parameters; every later call of it carries the values."""
    layer = paddle.nn.Linear(3, 3)
    before = {name: id(parameter) for name, parameter in layer.named_parameters()}
    same = static.set_ipu_shard(layer, index=2, stage=1)
    after = {name: id(parameter) for name, parameter in layer.named_parameters()}
    layer(data(static))

    check.holds(same is layer, "set_ipu_shard returns another object than the layer.")
    check.instance(actual=layer, expected=paddle.nn.Linear, what="the sharded layer")
    check.equal(actual=type(layer).__name__, expected="Linear", what="the class of the sharded layer")
    check.equal(actual=after, expected=before, what="the identity of the parameters by name")
    check.equal(actual=set(shards(static)), expected={(2, 1)}, what="the set of shards of its ops")


Build = Callable[[Any, Any, Any], Any]


def twice(name: str) -> Build:
    """A function of Paddle's that is wrapped once and used twice."""

    def build(shard: Any, nn: Any, x: Any) -> Any:
        function = shard(getattr(nn.functional, name), index=3, stage=1)
        return function(function(x))

    return build


SHARDED: Dict[str, Tuple[Build, List[Shard]]] = {
    **{name: (twice(name), [(3, 1), (3, 1)]) for name in ("relu", "tanh", "softmax")},
    "layers of one class": (
        lambda shard, nn, x: shard(nn.ReLU(), 1, 2)(nn.ReLU()(shard(nn.ReLU(), 0, 0)(x))), [(0, 0), NONE, (1, 2)],
    ),
    "sublayers": (
        lambda shard, nn, x: shard(nn.Sequential(nn.ReLU(), shard(nn.Tanh(), 3), nn.Sigmoid()), 1, 1)(x),
        [(1, 1), (3, None), (1, 1)],
    ),
    "a layer again": (lambda shard, nn, x: shard(shard(nn.ReLU(), 1, 1), 2, 2)(x), [(1, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("what", SHARDED)
def test_functions_and_layers_are_sharded_one_by_one(static: Any, paddle: Any, what: str) -> None:
    """Any function of Paddle's is wrapped, and of the layers those that were changed, with sublayers that were not.

    Changing a layer again wraps what was there: the first values are nearer to the ops.
    """
    build, expected = SHARDED[what]
    build(static.set_ipu_shard, paddle.nn, data(static))

    check.equal(actual=shards(static), expected=expected, what=SHARDS)


@pytest.mark.parametrize("value", [3, "relu", None, [abs]], ids=["int", "str", "None", "list"])
def test_only_layers_and_functions_are_sharded(static: Any, value: Any) -> None:
    """What cannot be called is refused."""
    match = r"Only accept paddle\.nn\.Layer or function"
    with check.raises(TypeError, match=match, what=f"set_ipu_shard({value!r})"):
        static.set_ipu_shard(value, index=1)


def train(static: Any, paddle: Any) -> Any:
    """A program of three sharded parts and an optimizer."""
    x = data(static)
    with static.ipu_shard_guard(index=0, stage=0):
        h = static.nn.fc(x, 5, activation="tanh")
    with static.ipu_shard_guard(index=1, stage=1):
        h = static.nn.fc(h, 2, activation="sigmoid")
    with static.ipu_shard_guard(index=0, stage=2):
        loss = paddle.mean(h * h)
    paddle.optimizer.SGD(learning_rate=0.5).minimize(loss)
    return static.default_main_program().global_block()


DIFFERENTIATED: Dict[str, List[Shard]] = {
    "mul": [(0, 0), (1, 1)], "elementwise_add": [(0, 0), (1, 1)], "tanh": [(0, 0)], "sigmoid": [(1, 1)],
    "elementwise_mul": [(0, 2)], "reduce_mean": [(0, 2)],
}  # fmt: skip


@pytest.mark.parametrize("op", DIFFERENTIATED)
def test_gradients_are_where_their_ops_are(static: Any, paddle: Any, op: str) -> None:
    """The gradient of an op carries the index and the stage of the op."""
    ops = train(static, paddle).ops
    forward, backward = ([shard(each) for each in ops if each.type == type] for type in (op, f"{op}_grad"))

    check.equal(actual=forward, expected=DIFFERENTIATED[op], what=f"the index and stage of each {op}")
    check.equal(actual=backward, expected=forward[::-1], what=f"the index and stage of each {op}_grad")


def test_a_copy_of_a_program_keeps_its_shards(static: Any, paddle: Any) -> None:
    """A cloned program, or one read back from its bytes, carries the same values."""
    train(static, paddle)
    program = static.default_main_program()
    read = static.Program.parse_from_string(program.desc.serialize_to_string())

    for how, copy in (("cloned", program.clone()), ("read", read)):
        carried = [shard(op) for op in copy.global_block().ops]
        check.equal(actual=carried, expected=shards(static), what=f"{SHARDS} of the {how} program")
