"""Half precision: models in float16 train within what float16 explains, and types come back as they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Mapping

import pytest

from ipu_conformance import check, nets
from ipu_conformance.nets import distinct_micro_batches

from ...training import Runs, ipus
from ..on_device import infer
from .config import FACTORS

HALF = replace(FACTORS, dtype="float16", gradient_accumulation=5)

pytestmark = ipus(HALF)


def stepped(runs: Runs, config: Any, seed: int = 7) -> Any:
    """What a call of a training model returns, and the model's module, which has left the device."""
    driver, net = runs.driver, nets.mlp()
    module = driver.NetModule(net, config)
    optimizer = driver.optimizer(config, module.parameters(), 0.25)
    trainer = driver.poptorch.trainingModel(module, driver.options(config).randomSeed(seed), optimizer)
    returned = trainer(*driver.tensors(distinct_micro_batches(net, config), 0, config))
    trainer.destroy()
    return returned, module


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_types_come_back_as_they_were(torch: Any, runs: Runs, dtype: str) -> None:
    """Logits have the type of the model, the loss of float32 logits is float32, and weights keep their type."""
    (logits, loss), module = stepped(runs, replace(HALF, dtype=dtype))
    kinds = {value.dtype for value in module.state_dict().values()}

    check.equal(actual=logits.dtype, expected=getattr(torch, dtype), what="the type of the logits")
    check.equal(actual=loss.dtype, expected=torch.float32, what="the type of the loss")
    check.equal(actual=kinds, expected={getattr(torch, dtype)}, what="the types of the weights")


INFINITY = float("inf")
EXTREME: Mapping[str, Any] = {
    "bool": (True, False),
    "int32": (-(2**31), -1, 0, 2**24 + 1, 2**31 - 1),
    "float16": (-INFINITY, -65504.0, -0.0, 2.0**-14, 65504.0, INFINITY, float("nan")),
    "float32": (-INFINITY, -(2.0**127), -0.0, 2.0**-126, 1 + 2.0**-23, INFINITY, float("nan")),
}
"""The ends of each type, and what has a pattern of bits of its own."""


@pytest.mark.parametrize("dtype", sorted(EXTREME))
def test_every_value_passes_a_device(poptorch: Any, torch: Any, dtype: str) -> None:
    """The extremes of a type come back from a device as they are, in a vector and each as a 0-d output."""
    x = torch.tensor(EXTREME[dtype], dtype=getattr(torch, dtype))
    joined, *single = infer(poptorch, lambda model, x: (torch.cat([x, x]), *x.unbind()), x)

    check.identical(actual=joined, expected=torch.cat([x, x]), what="the vector")
    check.identical(actual=torch.stack(single), expected=x, what="the 0-d outputs")


LARGE = (1, 3, -5, 2**30)
WRAPPING: Mapping[str, Callable[[Any], Any]] = {
    "product": lambda x: x * 65536 * 65533 > 0,
    "sum": lambda x: x + (2**31 - 1) > 0,
    "difference": lambda x: (x - (2**31 - 1)).float(),
    "negative": lambda x: -(x * 2**30) * 2 < 0,
    "total": lambda x: (x + 2**30).sum().float(),
    "written": lambda x: x.clone().mul_(2**29).add_(2**30) < 0,
    "float": lambda x: (x * 65536 * 3).float(),
}
"""What programs compute of whole numbers, so that 64 bits would give something else than 32."""


def _of_32_bits(torch: Any, compute: Callable[[Any], Any]) -> Any:
    """What comes of 32-bit operands by torch's own arithmetic, in which totals are of 32 bits too."""

    class Narrow(torch.overrides.TorchFunctionMode):
        """A mode in which nothing is wider than 32 bits."""

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            return result.to(torch.int32) if getattr(result, "dtype", None) == torch.int64 else result

    with Narrow():
        return compute(torch.tensor(LARGE, dtype=torch.int32))


@pytest.mark.parametrize("kind", ["int64", "int32"])
@pytest.mark.parametrize("name", WRAPPING)
def test_whole_numbers_inside_a_model_have_32_bits(poptorch: Any, torch: Any, name: str, kind: str) -> None:
    """Every tensor of a model has a type that the device has: what is computed of int64 is computed of int32.

    PopTorch's public sources coerce each type (``coerceToSupportedType``).
    """
    x = torch.tensor(LARGE, dtype=getattr(torch, kind))
    got = infer(poptorch, lambda model, x: WRAPPING[name](x), x, options=poptorch.Options().deviceIterations(1))

    check.identical(actual=got, expected=_of_32_bits(torch, WRAPPING[name]), what=f"the {name}")


def test_float64_inside_a_model_is_float32(poptorch: Any, torch: Any) -> None:
    """A third that is rounded to float32, subtracted from a third of float64, leaves nothing on the device."""
    x = torch.tensor([1.0, 2.0, -5.0])
    rest = infer(poptorch, lambda model, x: x.double() / 3 - (x / 3).double(), x)

    check.identical(actual=rest, expected=torch.zeros(3), what="the rest")


def test_stochastic_rounding_follows_the_seed(runs: Runs) -> None:
    """The same seed rounds the same way, another one otherwise; the replicas of one run agree."""
    config = replace(HALF, stochastic_rounding=True)
    first, again = runs.train("mlp", config), Runs("poptorch").train("mlp", config)
    check.runs_identical(actual=again, expected=first)

    one, two = (stepped(runs, config, seed)[1].weights()["fc1.weight"] for seed in (1, 2))
    check.differs(actual=two, other=one, what="fc1.weight of another seed")


def test_small_values_survive_stochastic_rounding(poptorch: Any, torch: Any) -> None:
    """What float16 holds exactly is not rounded, down to its smallest value: subnormals are values too."""
    x = torch.arange(1, 9, dtype=torch.float32).mul(2.0**-24).half().reshape(4, 2)
    options = poptorch.Options().deviceIterations(4)
    options.Precision.enableStochasticRounding(True)
    out = infer(poptorch, lambda model, x: -x, x, options=options)

    check.identical(actual=out, expected=-x, what="the negated values")
