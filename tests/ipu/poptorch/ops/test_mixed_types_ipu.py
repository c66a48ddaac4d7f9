"""float16 beside float32: products are computed in float32, and what writes into a tensor takes on its type.

The numbers of the float32 side need more bits than float16 has, so that a device which narrows them is noticed; all
results are exact in float32.
"""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import poptorch, torch
from ..on_device import gradient, infer

WIDE = 2.0**-12
"""What float16 drops beside 1."""


PRODUCTS: Dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda x, weight: torch.nn.functional.linear(x, weight),
    "matmul": lambda x, weight: x @ weight.t(),
    "einsum": lambda x, weight: torch.einsum("ij,kj->ik", x, weight),
    "convolution": lambda x, weight: torch.conv2d(x[:, :, None, None], weight[:, :, None, None])[:, :, 0, 0],
}
"""The product of three rows of two columns in different words."""


@pytest.mark.parametrize("half", ["activations", "weights"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_a_product_of_two_types_is_computed_in_the_wider(product: str, half: str) -> None:
    """No bit of the float32 side is lost, and the result is float32."""
    narrow, wide = torch.tensor([[1.0, 2.0], [3.0, -4.0], [0.5, 8.0]]), torch.tensor([[1.0 + WIDE, 5.0 - WIDE]] * 3)
    x, weight = (narrow.half(), wide) if half == "activations" else (wide, narrow.half())

    actual = infer(poptorch, lambda model, x: PRODUCTS[product](x, model.weight), x, weight=torch.nn.Parameter(weight))

    expected = (x.double() @ weight.double().t()).float()
    assert_same(actual, expected, f"the {product} of float16 {half}")


def test_weights_of_float32_train_beside_activations_of_float16() -> None:
    """The gradient of a float32 weight keeps all the bits of the float32 factor that it is made of."""
    x, factor = torch.tensor([[2.0, -3.0, 0.5]]).half(), torch.tensor([[1.0 + WIDE]])

    def forward(model: Any, x: Any, factor: Any) -> Any:
        return poptorch.identity_loss((x @ model.weight) * factor, "sum")

    actual = gradient(poptorch, forward, torch.zeros(3, 1), x, factor)

    assert_same(actual, x.float().t() * (1.0 + WIDE), "the gradient")


WRITES: Dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda target, source: target.__setitem__(torch.tensor([0, 2]), source),
    "slice": lambda target, source: target.__setitem__(slice(0, 3, 2), source),
    "index_copy_": lambda target, source: target.index_copy_(0, torch.tensor([0, 2]), source),
}


@pytest.mark.parametrize("write", WRITES)
def test_what_writes_into_a_tensor_takes_on_its_type(write: str) -> None:
    """A float16 tensor that float32 values are written into stays float16 and holds them rounded."""

    def forward(model: Any, x: Any, source: Any) -> Any:
        target = x * 2
        WRITES[write](target, source)
        return target

    x, source = torch.tensor([1.0, 2.0, 3.0]).half(), torch.tensor([1.0 + WIDE, 7.0])

    actual = infer(poptorch, forward, x, source)

    assert_same(actual, torch.tensor([1.0, 4.0, 7.0]).half(), "the tensor")


def test_a_normalization_has_the_type_of_its_input() -> None:
    """Weights and statistics in float32 leave float16 activations float16."""
    layer = torch.nn.BatchNorm1d(2).eval()

    actual = poptorch.inferenceModel(layer)(torch.tensor([[1.0, 2.0], [3.0, 4.0]]).half())

    check.equal(actual=actual.dtype, expected=torch.float16, what="the type of normalized float16 values")
