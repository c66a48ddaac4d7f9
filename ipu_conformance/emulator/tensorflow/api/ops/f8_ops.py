"""Numbers of eight bits, which the kernels of a CPU do not compute with."""

from __future__ import annotations

import enum

from ipu_conformance.emulator.tensorflow.surface import unavailable_class as _unavailable_class
from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

_WHY = "a CPU has no numbers of eight bits with a scale of their own"


class Format(enum.IntEnum):
    """How many of eight bits are the exponent and the mantissa."""

    F143 = 0
    F152 = 1


_FUNCTIONS = {
    "canonicalise_input": "inp, expected_rank=3, name='MatMulCanonicalise'",
    "canonicalise_output": "output, lhs",
    "convert_from_f8": "packed_input, dtype='half', name=None",
    "convert_to_f8": "values, metadata, name=None",
    "create_metadata": "fmt, scale=0",
    "f8_conv_1d": "inputs, filters, strides, padding, data_format='NWC', dilations=[1], name='f8_conv_1d'",
    "f8_conv_2d": "inputs, filters, strides, padding, data_format='NHWC', dilations=[1, 1, 1, 1], name='f8_conv_2d'",
    "f8_conv_3d": "inputs, filters, strides, padding, data_format='NDHWC', dilations=[1, 1, 1, 1, 1], "
    "name='f8_conv_3d'",
    "f8_matmul": "lhs, rhs, name='f8_matmul'",
}
globals().update({name: _unavailable_function(name, _WHY, parameters) for name, parameters in _FUNCTIONS.items()})
QuarterTensor = _unavailable_class(
    "QuarterTensor",
    _WHY,
    "data, metadata",
    {"__iter__": "", "__len__": "", "assign": "new_values, **kwargs", "dtype": "", "numpy": "", "shape": ""},
)

__all__ = ["Format", "QuarterTensor", *_FUNCTIONS]
