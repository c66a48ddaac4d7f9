"""Graphs to draw: any that can be built, and those that a format holds completely."""

from __future__ import annotations

from functools import lru_cache

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


lengths = st.integers(0, 2)
sized_dtypes, any_dtypes = st.sampled_from(SIZED), st.sampled_from(sorted(BITS))
known_dtypes = st.sampled_from(sorted(set(BITS) - {"UNDEFINED"}))
placements = st.none() | st.integers(0, 7)
op_names = names | st.just("")
op_counts, opsets, flags = st.integers(1, 8), st.integers(7, 22), st.booleans()


@st.composite
def literals(draw):
    dtype, shape = draw(sized_dtypes), draw(small_shapes)
    length = size(dtype, shape)
    return Literal(dtype, shape, draw(st.binary(min_size=length, max_size=length)))


@lru_cache(maxsize=None)  # a strategy that is made for every op takes longer than what is drawn from it
def attributes(floats):
    scalars = st.one_of(integers, floats, texts)
    lists = st.one_of(*(st.lists(items, max_size=3).map(tuple) for items in (integers, floats, texts)))
    keys = names.filter(lambda name: name not in ("__ipu_number", "__pipeline_stage"))
    return st.dictionaries(keys, scalars | lists | literals(), max_size=3)


@st.composite
def graphs(draw, types=TYPES, floats=float64s, bounded=False):
    """A valid graph; with ``bounded``, dtype and rank of every tensor are known, as ONNX asks at a graph's ends."""
    tensors, inputs, weights, ops = {}, [], {}, []

    def tensor(shape, dtypes):
        name = draw(names)
        while name in tensors:  # a number makes it unique; to draw until it is takes long
            name += str(len(tensors))
        tensors[name] = Tensor(name, draw(dtypes), draw(shape))
        return name

    known, dtypes = (ranked_shapes, known_dtypes) if bounded else (shapes, any_dtypes)
    op_types = st.sampled_from(types)
    for _ in range(draw(lengths)):
        inputs.append(tensor(known, dtypes))
    for _ in range(draw(lengths)):
        if draw(flags):
            weights[tensor(known, dtypes)] = None
        else:
            name = tensor(small_shapes, sized_dtypes)
            length = tensors[name].nbytes
            weights[name] = draw(st.binary(min_size=length, max_size=length))
    for _ in range(draw(op_counts)):
        read = draw(st.lists(st.sampled_from([*tensors, ""]), max_size=3))
        outputs = [tensor(known, dtypes), *([""] if draw(flags) else [])]
        ops.append(
            Op(
                draw(op_types),
                draw(op_names),
                tuple(read),
                tuple(outputs),
                draw(attributes(floats)),
                draw(placements),
                draw(placements),
            )
        )
    outputs = draw(st.lists(st.sampled_from([*tensors]), unique=True, max_size=3))
    return Graph(draw(names), ops, inputs, outputs, tensors, weights, draw(opsets))
