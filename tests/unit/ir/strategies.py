"""Graphs to draw: any that can be built, and those that a format holds completely."""

from __future__ import annotations

from hypothesis import strategies as st

from ipu_conformance.ir import Graph, Literal, Op, Tensor
from ipu_conformance.ir.tensor import BITS, INT64_MAX, INT64_MIN, size

SIZED = sorted(dtype for dtype, bits in BITS.items() if bits)
"""The dtypes whose values can be stored."""

FOREIGN_TYPES = ["IpuCopy", "SGD0VarUpdate", "ReplicatedAllReduce", "AdamUpdater", "com.acme::Spin"]
"""Types that ONNX does not define, so that the checker lets them have any inputs and attributes."""

TYPES = [*FOREIGN_TYPES, "Conv", "Relu", "Add", "MatMul"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.one_of(
    st.sampled_from(["x", "a b", 'say "hi"', "back\\slash", "<&amp;>", "line\nbreak", "{}", "Schicht/Gewicht/ß"]),
    texts.filter(bool),
)
integers = st.integers(INT64_MIN, INT64_MAX)
float64s = st.floats(allow_nan=False)
float32s = st.floats(width=32, allow_nan=False)
small_shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
ranked_shapes = st.lists(st.none() | st.integers(0, INT64_MAX), max_size=4).map(tuple)
shapes = st.none() | ranked_shapes


@st.composite
def literals(draw):
    dtype, shape = draw(st.sampled_from(SIZED)), draw(small_shapes)
    length = size(dtype, shape)
    return Literal(dtype, shape, draw(st.binary(min_size=length, max_size=length)))


def attributes(floats):
    scalars = st.one_of(integers, floats, texts)
    lists = st.one_of(*(st.lists(items, max_size=3).map(tuple) for items in (integers, floats, texts)))
    keys = names.filter(lambda name: name not in ("__ipu_number", "__pipeline_stage"))
    return st.dictionaries(keys, scalars | lists | literals(), max_size=3)


placements = st.none() | st.integers(0, 7)


@st.composite
def graphs(draw, types=TYPES, floats=float64s, bounded=False):
    """A valid graph; with ``bounded``, dtype and rank of every tensor are known, as ONNX asks at a graph's ends."""
    unique = iter(draw(st.lists(names, unique=True, min_size=12, max_size=24)))
    tensors, given, weights, ops = [], [], {}, []

    def tensor(name, shape, dtypes):
        tensors.append(Tensor(name, draw(st.sampled_from(dtypes)), draw(shape)))
        return name

    known = ranked_shapes if bounded else shapes
    dtypes = tuple(sorted(set(BITS) - {"UNDEFINED"})) if bounded else tuple(sorted(BITS))
    for _ in range(draw(st.integers(0, 2))):
        given.append(tensor(next(unique), known, dtypes))
    for _ in range(draw(st.integers(0, 2))):
        if draw(st.booleans()):
            weights[tensor(next(unique), known, dtypes)] = None
        else:
            name = tensor(next(unique), small_shapes, tuple(SIZED))
            length = tensors[-1].nbytes
            weights[name] = draw(st.binary(min_size=length, max_size=length))
    for name in unique:
        available = st.sampled_from([t.name for t in tensors] + [""])
        inputs = draw(st.lists(available, max_size=3))
        outputs = [tensor(name, known, dtypes)]
        if draw(st.booleans()):
            outputs.append("")
        ops.append(
            Op(
                draw(st.sampled_from(types)),
                draw(names | st.just("")),
                tuple(inputs),
                tuple(outputs),
                draw(attributes(floats)),
                draw(placements),
                draw(placements),
            )
        )
        if draw(st.integers(0, 3)) == 0:
            break
    outputs = draw(st.lists(st.sampled_from([t.name for t in tensors]), unique=True, max_size=3))
    return Graph(draw(names), ops, given, outputs, tensors, weights, draw(st.integers(7, 22)))
