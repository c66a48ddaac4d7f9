"""float16 beside float32: products are computed in float32, and what writes into a tensor takes on its type.

The numbers of the float32 side need more bits than float16 has, so that a device which narrows them is noticed; all
results are exact in float32.
"""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..on_device import as_model, gradient, infer

WIDE = 2.0**-12
"""What float16 drops beside 1."""


def linear(torch: Any, x: Any, weight: Any) -> Any:
    """Three rows of two columns."""
    return torch.nn.functional.linear(x, weight)


def matmul(torch: Any, x: Any, weight: Any) -> Any:
    """The same, by the operator."""
    return x @ weight.t()


def einsum(torch: Any, x: Any, weight: Any) -> Any:
    """The same, by indices."""
    return torch.einsum("ij,kj->ik", x, weight)


def convolution(torch: Any, x: Any, weight: Any) -> Any:
    """The same, as a convolution of pictures of one pixel."""
    return torch.conv2d(x[:, :, None, None], weight[:, :, None, None])[:, :, 0, 0]


PRODUCTS = (linear, matmul, einsum, convolution)


@pytest.mark.parametrize("half", ["activations", "weights"])
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.__name__)
def test_a_product_of_two_types_is_computed_in_the_wider(
    poptorch: Any, torch: Any, product: Callable[..., Any], half: str
) -> None:
    """No bit of the float32 side is lost, and the result is float32."""
    narrow, wide = torch.tensor([[1.0, 2.0], [3.0, -4.0], [0.5, 8.0]]), torch.tensor([[1.0 + WIDE, 5.0 - WIDE]] * 3)
    x, weight = (narrow.half(), wide) if half == "activations" else (wide, narrow.half())
    model = as_model(lambda model, x: product(torch, x, model.weight), weight=torch.nn.Parameter(weight))

    actual = poptorch.inferenceModel(model)(x)

    expected = (x.double() @ weight.double().t()).float()
    assert_same(actual, expected, f"{product.__name__} of float16 {half}")


def test_weights_of_float32_train_beside_activations_of_float16(poptorch: Any, torch: Any) -> None:
    """The gradient of a float32 weight keeps all the bits of the float32 factor that it is made of."""
    x, factor = torch.tensor([[2.0, -3.0, 0.5]]).half(), torch.tensor([[1.0 + WIDE]])

    def forward(model: Any, x: Any, factor: Any) -> Any:
        return poptorch.identity_loss((x @ model.weight) * factor, "sum")

    actual = gradient(poptorch, forward, torch.zeros(3, 1), x, factor)

    assert_same(actual, x.float().t() * (1.0 + WIDE), "the gradient")


WRITES: Dict[str, Callable[[Any, Any, Any], Any]] = {
    "index": lambda torch, target, source: target.__setitem__(torch.tensor([0, 2]), source),
    "slice": lambda torch, target, source: target.__setitem__(slice(0, 3, 2), source),
    "index_copy_": lambda torch, target, source: target.index_copy_(0, torch.tensor([0, 2]), source),
}


@pytest.mark.parametrize("write", WRITES)
def test_what_writes_into_a_tensor_takes_on_its_type(poptorch: Any, torch: Any, write: str) -> None:
    """A float16 tensor that float32 values are written into stays float16 and holds them rounded."""

    def forward(model: Any, x: Any, source: Any) -> Any:
        target = x * 2
        WRITES[write](torch, target, source)
        return target

    x, source = torch.tensor([1.0, 2.0, 3.0]).half(), torch.tensor([1.0 + WIDE, 7.0])

    actual = infer(poptorch, forward, x, source)

    assert_same(actual, torch.tensor([1.0, 4.0, 7.0]).half(), "the tensor")


def test_a_normalization_has_the_type_of_its_input(poptorch: Any, torch: Any) -> None:
    """Weights and statistics in float32 leave float16 activations float16."""
    layer = torch.nn.BatchNorm1d(2).eval()

    actual = poptorch.inferenceModel(layer)(torch.tensor([[1.0, 2.0], [3.0, 4.0]]).half())

    check.equal(actual=actual.dtype, expected=torch.float16, what="the type of normalized float16 values")
