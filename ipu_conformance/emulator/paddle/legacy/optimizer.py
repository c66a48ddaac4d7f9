"""``paddle.fluid.optimizer``: optimizers by their old names and parameters."""

from __future__ import annotations

from typing import Any, List, Tuple

import paddle

from ipu_conformance.emulator.paddle.legacy import table
from ipu_conformance.emulator.paddle.legacy.table import Old

_REST = "parameter_list=None, regularization=None, grad_clip=None, name=None"
_BETAS = "learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon="
_LAID_OUT = ("use_global_beta_pow", "flatten_param_grads")
"""How Adam keeps its state, which changes no value; ``align_size`` goes with them."""
_WORDS = {"parameter_list": "parameters", "regularization": "weight_decay"}


def _lamb(parameter_list: Any, regularization: Any, **words: Any) -> Any:
    if regularization is not None:
        raise ValueError("Lamb decays weights by lamb_weight_decay, and Paddle 2 has no other decay for it")
    return paddle.optimizer.Lamb(parameters=parameter_list, **words)


_KINDS: Tuple[Tuple[str, str], ...] = (
    ("SGD", f"learning_rate, {_REST}"),
    ("Momentum", "learning_rate, momentum, parameter_list=None, use_nesterov=False, regularization=None, "
     "grad_clip=None, name=None"),
    ("Adam", f"{_BETAS}1e-08, {_REST}, lazy_mode=False, {_LAID_OUT[0]}=False, {_LAID_OUT[1]}=False, align_size=-1"),
    ("Adamax", f"{_BETAS}1e-08, {_REST}"),
    ("Adagrad", f"learning_rate, epsilon=1e-06, {_REST}, initial_accumulator_value=0.0"),
    ("Adadelta", f"learning_rate, epsilon=1e-06, rho=0.95, {_REST}"),
    ("RMSProp", f"learning_rate, rho=0.95, epsilon=1e-06, momentum=0.0, centered=False, {_REST}"),
    ("Lamb", "learning_rate=0.001, lamb_weight_decay=0.01, beta1=0.9, beta2=0.999, epsilon=1e-06, "
     "parameter_list=None, regularization=None, grad_clip=None, exclude_from_weight_decay_fn=None, name=None"),
)  # fmt: skip

ROWS: Tuple[Old, ...] = tuple(
    Old(name, parameters, _lamb if kind == "Lamb" else f"optimizer.{kind}", _WORDS,
        (*_LAID_OUT, "align_size") if kind == "Adam" else ())
    for kind, parameters in _KINDS
    for name in (kind, f"{kind}Optimizer")
)  # fmt: skip
"""Each optimizer by its short and its long name."""

_FUNCTIONS = table.functions(ROWS)


def __getattr__(name: str) -> Any:
    return _FUNCTIONS[name] if name in _FUNCTIONS else table.missing("paddle.fluid.optimizer", name)


def __dir__() -> List[str]:
    return sorted(_FUNCTIONS)
