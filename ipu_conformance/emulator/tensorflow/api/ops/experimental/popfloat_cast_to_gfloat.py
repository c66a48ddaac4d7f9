"""Numbers of any format, which the vendor's library computes with."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.surface import unavailable_class as _unavailable_class
from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

_WHY = "numbers of any format are cast by the vendor's library"
_NORM = "sr_norm_offset=0.0, sr_norm_scale=1.0, sr_norm_min=-0.5, sr_norm_max=0.5, sr_prob=1.0"
_TO = f"en_nanoo=True, round_mode='RN', sr_bits=23, sr_density='Invalid', {_NORM}"
_FUNCTIONS = {
    "calc_gfloat_params": "man=10, exp=5, bias=15, en_denorm=True, en_inf=True, calc_type='float32'",
    "cast_gfloat_to_native": "inputs, params, gfloat_format='Invalid', calc_type='float32', out_type='float32'",
    "cast_native_to_gfloat": f"inputs, params, {_TO}, gfloat_format='Invalid', calc_type='float32', out_type='float32'",
}
globals().update({name: _unavailable_function(name, _WHY, parameters) for name, parameters in _FUNCTIONS.items()})
_PLAIN = (
    "calc_quantized_fp16_params", "calc_quantized_fp32_params", "get_cast_to_gfloat_params", "get_en_denorms",
    "get_en_inf", "get_exponent_bias", "get_exponent_size", "get_gfloat_calc_dtype", "get_gfloat_cast_param_size",
    "get_gfloat_native_dtype", "get_gfloat_packed_params", "get_gfloat_storage_dtype", "get_mantissa_size",
    "is_packed_float", "reset", "set_param",
)  # fmt: skip
GenericFloat = _unavailable_class(
    "GenericFloat",
    _WHY,
    "man=10, exp=5, bias=15, en_denorm=True, en_inf=True, calc_type='auto', name=None",
    {
        **dict.fromkeys(_PLAIN, ""),
        "cast_gfloat_to_native": "inputs, storage_type='auto'",
        "cast_native_to_gfloat": "inputs, en_nanoo=True, round_mode='RN', sr_density='Invalid', sr_bits=23, "
        f"{_NORM}, storage_type='auto'",
        "get_cast_gfloat_to_native_fun": "storage_type='auto'",
        "get_cast_native_to_gfloat_fun": f"{_TO}, storage_type='auto'",
        "get_gfloat_param_size": "calc_type",
    },
)

__all__ = ["GenericFloat", *_FUNCTIONS]
