"""Border rules of convolution and pooling, on examples small enough to check by hand, and their duality."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.op import OracleError
from ipu_conformance.oracle.ops import OPS
from ipu_conformance.oracle.ops.layers.window import window
from tests.unit.examples import at_most
from tests.unit.oracle.ops.strategies import samples


def _line(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64).reshape(1, 1, -1)


@given(
    size=st.integers(1, 20),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
)
def test_same_padding_gives_one_place_per_stride(size, kernel, stride, dilation):
    """SAME has ceil(size / stride) places, and pads at most one element more after than before."""
    view = window((size,), kernel, stride, "SAME", dilation)
    ((before, after),) = view.padding

    assert view.places == (-(-size // stride),)
    assert after - before in (0, 1)


@at_most(30)
@given(data=st.data())
def test_fold_is_the_adjoint_of_unfold(data):
    """The inner product of windows of x with y is that of x with the folded y; integers make both sums exact."""
    attributes = dict(data.draw(samples(OPS["avg_pool"]), label="sample").attributes)
    kernel = attributes["kernel"]
    size = tuple(k + data.draw(st.integers(0, 3)) for k in kernel)
    view = window(size, kernel, attributes["stride"], attributes["padding"], 1, attributes["ceil_mode"])
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = generator.integers(-9, 9, (2, 3, *size)).astype(np.float64)
    windows = view.unfold(x)
    y = generator.integers(-9, 9, windows.shape).astype(np.float64)

    assert np.sum(windows * y) == np.sum(x * view.fold(y))


def test_ceil_mode_keeps_a_window_that_starts_inside_only():
    """Rounding up adds a last, partial window, unless it would start beyond the input."""
    x = _line(1, 2, 3, 4)

    assert OPS["max_pool"].forward(x, kernel=2, stride=3, ceil_mode=True).tolist() == [[[2, 4]]]
    assert OPS["max_pool"].forward(x, kernel=1, stride=4, ceil_mode=True).tolist() == [[[1]]]
    assert OPS["max_pool"].forward(x, kernel=2, stride=3, ceil_mode=False).tolist() == [[[2]]]


def test_mean_divides_by_what_counts():
    """Padding counts only on request, and what hangs over beyond it never does."""
    x = _line(2, 4, 6, 8)
    geometry = {"kernel": 2, "stride": 3, "padding": 1, "ceil_mode": True}

    assert OPS["avg_pool"].forward(x, **geometry, count_include_pad=True).tolist() == [[[1, 7]]]
    assert OPS["avg_pool"].forward(x, **geometry, count_include_pad=False).tolist() == [[[2, 7]]]
    assert OPS["avg_pool"].forward(_line(6), kernel=3, stride=3, ceil_mode=True, padding=1).tolist() == [[[2]]]
    assert OPS["avg_pool"].forward(_line(2, 4, 6), kernel=2, stride=2, ceil_mode=True).tolist() == [[[3, 6]]]


def test_max_pool_sends_the_gradient_to_the_first_of_equal_values():
    """Of equal values in a window the first one gets the gradient."""
    (dx,) = OPS["max_pool"].vjp(_line(1, 1), _line(3, 3, 0, 0), kernel=2)

    assert dx.tolist() == [[[1, 0, 1, 0]]]


def test_adaptive_bins_overlap_where_sizes_do_not_divide():
    """Bin i of 2 over 3 elements covers floor(1.5 i) to ceil(1.5 (i + 1))."""
    assert OPS["adaptive_avg_pool"].forward(_line(1, 3, 8), output_size=2).tolist() == [[[2, 5.5]]]
    assert OPS["adaptive_max_pool"].forward(_line(1, 3, 2), output_size=2).tolist() == [[[3, 3]]]


def test_transposed_convolution_spreads_the_kernel():
    """Each element adds a copy of the kernel a stride further; padding cuts, output padding lengthens."""
    x, w = _line(1, 2), _line(1, 10, 100)

    assert OPS["conv_transpose"].forward(x, w, stride=2).tolist() == [[[1, 10, 102, 20, 200]]]
    assert OPS["conv_transpose"].forward(x, w, stride=2, padding=1).tolist() == [[[10, 102, 20]]]
    longer = OPS["conv_transpose"].forward(x, w, stride=2, padding=1, output_padding=1)
    assert longer.tolist() == [[[10, 102, 20, 200]]]


def test_convolution_does_not_flip_the_kernel():
    """Convolution is cross-correlation: the first tap meets the earlier element."""
    assert OPS["conv"].forward(_line(1, 2, 3), _line(1, 10)).tolist() == [[[21, 32]]]


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: OPS["conv"].forward(_line(1), _line(1, 2)), "does not fit"),
        (lambda: OPS["conv"].forward(_line(1, 2), _line(1), padding="REFLECT"), "REFLECT"),
        (lambda: OPS["conv"].forward(_line(1, 2), _line(1), groups=2), "2 groups"),
        (lambda: OPS["conv_transpose"].forward(_line(1), _line(1), output_padding=1), "output_padding"),
        (lambda: OPS["conv_transpose"].forward(_line(1), _line(1), padding="SAME"), "SAME"),
    ],
)
def test_impossible_geometry_is_refused(call, word):
    """Windows that do not fit, unknown padding and wrong groups are refused by name."""
    with pytest.raises(OracleError, match=word):
        call()
