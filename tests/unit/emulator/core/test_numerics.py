"""Rounding, partial sums, narrowing and traps of the emulated device."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ipu_conformance.emulator.core import numerics
from ipu_conformance.emulator.core.numerics import NumericsError, Traps
from ipu_conformance.emulator.faults import catalogue
from tests.unit.examples import at_most

HALF = np.finfo(np.float16)
HALF_MAX = float(HALF.max)
EVERY_FINITE_HALF = np.arange(2**16, dtype=np.uint16).view(np.float16)
EVERY_FINITE_HALF = EVERY_FINITE_HALF[np.isfinite(EVERY_FINITE_HALF)]

in_range = st.floats(-HALF_MAX, HALF_MAX)
arrays_in_range = hnp.arrays(np.float64, st.integers(1, 30), elements=in_range)


def neighbours(exact: np.ndarray) -> tuple:
    """The largest float16 not above and the smallest not below each value, found by search among all float16."""
    ordered = np.unique(EVERY_FINITE_HALF.astype(np.float64))
    right = np.searchsorted(ordered, exact, side="left")
    above = ordered[np.minimum(right, len(ordered) - 1)]
    below = np.where(above == exact, above, ordered[np.maximum(right - 1, 0)])
    return below, above


class TestRoundToNearest:
    """Casting to float16 without a seed."""

    @at_most(200)
    @given(arrays_in_range)
    def test_gives_the_nearest_value(self, exact):
        """No float16 is nearer to the exact value than the rounded one."""
        actual = numerics.to_float16(exact).astype(np.float64)
        below, above = neighbours(exact)

        assert (np.abs(actual - exact) == np.minimum(exact - below, above - exact)).all()

    def test_a_tie_goes_to_the_even_neighbour(self):
        """Half-way between neighbours, the one with an even last bit is taken, for every finite pair."""
        ordered = np.unique(np.abs(EVERY_FINITE_HALF))
        lower, upper = ordered[:-1], ordered[1:]
        even = np.where(lower.view(np.uint16) % 2 == 0, lower, upper)
        middle = (lower.astype(np.float64) + upper.astype(np.float64)) / 2

        assert (numerics.to_float16(middle) == even).all()
        assert (numerics.to_float16(middle.astype(np.float32)) == even).all()

    def test_a_float64_is_rounded_once(self):
        """A float64 just above a tie goes up, although float32 in between would make it a tie."""
        assert numerics.to_float16(1 + HALF.eps / 2 + 2.0**-40) == 1 + HALF.eps

    def test_float16_is_returned_as_it_is(self):
        """Values that are float16 already keep their bits, NaN payloads included."""
        every = np.arange(2**16, dtype=np.uint16).view(np.float16)

        assert numerics.to_float16(every).tobytes() == every.tobytes()

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_every_float16_survives_a_round_trip(self, dtype):
        """A float16 that was widened comes back with the same bits, signed zeros and subnormals included."""
        wide = EVERY_FINITE_HALF.astype(dtype)

        assert numerics.to_float16(wide).tobytes() == EVERY_FINITE_HALF.tobytes()
        assert numerics.to_float16(wide, seed=0).tobytes() == EVERY_FINITE_HALF.tobytes()


class TestOverflow:
    """Finite values beyond ±65504."""

    @pytest.mark.parametrize("seed", [None, 0])
    def test_saturates(self, seed):
        """Finite values beyond the range become the largest finite value of their sign; infinities and NaN stay."""
        actual = numerics.to_float16([1e6, -1e300, np.inf, -np.inf, np.nan], seed=seed)

        np.testing.assert_array_equal(actual, np.array([HALF_MAX, -HALF_MAX, np.inf, -np.inf, np.nan], np.float16))

    @pytest.mark.parametrize("seed", [None, 0])
    def test_gives_nan_when_asked(self, seed):
        """With nanoo an overflow is NaN, while an infinity that was there stays."""
        actual = numerics.to_float16([1e6, -1e6, np.inf, 1.0], seed=seed, traps=Traps(nanoo=True))

        np.testing.assert_array_equal(actual, np.array([np.nan, np.nan, np.inf, 1], np.float16))

    @pytest.mark.parametrize("traps", [Traps(oflo=True), Traps(inv=True, nanoo=True)], ids=str)
    def test_traps(self, traps):
        """The error names the op, the first index and the value."""
        exact = np.zeros((3, 4))
        exact[1, 2:] = 1e5, 1e6
        with pytest.raises(NumericsError, match=r"^Exp overflows float16 at index \(1, 2\): 100000\.0 is beyond"):
            numerics.to_float16(exact, traps=traps, op="Exp")

    def test_an_infinity_is_no_overflow(self):
        """The trap stays silent on infinities that were there before."""
        assert np.isinf(numerics.to_float16([np.inf, -np.inf], traps=Traps(oflo=True))).all()

    def test_the_border_is_where_nearest_rounding_leaves_the_range(self):
        """Below the middle of 65504 and 65536 the largest value is right and nothing traps; at the middle it traps."""
        border = HALF_MAX + 16
        assert numerics.to_float16(np.nextafter(border, 0), traps=Traps(oflo=True)) == HALF_MAX
        with pytest.raises(NumericsError):
            numerics.to_float16(border, traps=Traps(oflo=True))


class TestStochasticRounding:
    """Casting to float16 with a seed."""

    @at_most(200)
    @given(arrays_in_range, st.integers(0, 2**32))
    def test_gives_a_neighbour(self, exact, seed):
        """The rounded value is one of the two neighbours of the exact value, and the value itself where it is exact."""
        actual = numerics.to_float16(exact, seed=seed).astype(np.float64)
        below, above = neighbours(exact)

        assert ((actual == below) | (actual == above)).all()

    @at_most(50)
    @given(hnp.arrays(np.float32, hnp.array_shapes(), elements=st.floats(-1, 1, width=32)), st.integers(0, 2**32))
    def test_is_reproducible_and_keeps_shape_and_sign(self, exact, seed):
        """One seed gives one result; the shape and every sign bit are the input's."""
        first, second = (numerics.to_float16(exact, seed=seed) for _ in range(2))

        assert first.tobytes() == second.tobytes()
        assert first.shape == exact.shape
        assert (np.signbit(first) == np.signbit(exact)).all()

    def test_seeds_differ_and_a_generator_goes_on(self):
        """Another seed gives other bits, and a generator gives new bits at each call."""
        exact = np.full(1000, 1 / 3)
        generator = np.random.default_rng(1)
        results = [numerics.to_float16(exact, seed=seed) for seed in (1, 2, generator, generator)]

        assert len({result.tobytes() for result in results}) == 3
        assert results[0].tobytes() == results[2].tobytes()

    @pytest.mark.parametrize(
        "exact",
        [1 / 3, -1 / 3, 1 + HALF.eps / 64, 4095.9, -math.pi * 1e-5, 3.3 * 2.0**-24, 0.01 * 2.0**-24, 6.1e-5],
        ids=str,
    )
    def test_is_unbiased(self, exact):
        """The share of values rounded up is the fraction of the gap that is covered, normal and subnormal alike.

        The number of ups among n draws is binomial; by Hoeffding's inequality it strays from n·p by more than
        sqrt(n·ln(2/a)/2) with probability at most a. With a = 1e-9 for each of eight values and a fixed seed, a
        right implementation fails for one seed in 1.2e8.
        """
        n, false_alarm = 200_000, 1e-9
        below, above = neighbours(np.array([exact]))
        rounded = numerics.to_float16(np.full(n, exact), seed=2021).astype(np.float64)
        ups = int((rounded == above).sum())

        share = float((exact - below[0]) / (above[0] - below[0]))
        assert abs(ups - n * share) <= math.sqrt(n * math.log(2 / false_alarm) / 2)

    def test_mean_error_over_many_values_is_zero(self):
        """The errors of different values average out, over several cachefuls of a two-dimensional array.

        Each error lies in an interval of one quantum and has mean zero; by Hoeffding's inequality their sum, in
        quanta, exceeds sqrt(n·ln(2/a)/2) with probability at most a = 1e-9. Rounding to nearest of values that
        all lie a quarter above their lower neighbour has a sum of -n/4 and fails.
        """
        lower = np.random.default_rng(5).integers(1024, 2048, size=(400, 300))
        exact = ((lower + 0.25) / 1024).astype(np.float32)
        error = (numerics.to_float16(exact, seed=7).astype(np.float64) - exact) * 1024

        bound = math.sqrt(exact.size * math.log(2 / 1e-9) / 2)
        assert abs(error.sum()) <= bound
        nearest = (numerics.to_float16(exact).astype(np.float64) - exact) * 1024
        assert abs(nearest.sum()) > bound

    def test_neighbouring_elements_are_rounded_independently(self):
        """Of equal values in pairs both go up in the square of the share, within Hoeffding's bound for 1e-9."""
        n = 100_000
        pairs = numerics.to_float16(np.full((n, 2), 1 + HALF.eps / 2), seed=3) > 1
        both = int(pairs.all(axis=1).sum())

        assert abs(both - n / 4) <= math.sqrt(n * math.log(2 / 1e-9) / 2)


def by_definition(a, b, partials, block):
    """The model of ``dot``, one element and one block at a time."""
    result = np.empty((a.shape[0], b.shape[1]), a.dtype)
    for i, j in np.ndindex(*result.shape):
        partial = partials(0)
        for start in range(0, a.shape[1], block):
            terms = a[i, start : start + block].astype(np.float64) * b[start : start + block, j].astype(np.float64)
            partial = partials(np.float64(partial) + math.fsum(terms))
        result[i, j] = partial
    return result


class TestDot:
    """Matrix products with partial sums of a chosen type."""

    @at_most(60)
    @given(st.data())
    def test_follows_the_model(self, data):
        """Partial sums are rounded once per block; with eighths as operands a block's sum is exact in float64."""
        m, k, n = (data.draw(st.integers(1, limit)) for limit in (3, 40, 3))
        dtype = data.draw(st.sampled_from([np.float16, np.float32]))
        block = data.draw(st.integers(1, 17))
        elements = st.integers(-63, 63).map(lambda i: i / 8)
        a = data.draw(hnp.arrays(dtype, (m, k), elements=elements))
        b = data.draw(hnp.arrays(dtype, (k, n), elements=elements))
        partials = data.draw(st.sampled_from(numerics.PARTIALS))

        expected = by_definition(a, b, np.dtype(partials).type, block)
        actual = numerics.dot(a, b, partials=partials, block=block)
        assert actual.dtype == dtype
        np.testing.assert_array_equal(actual, expected)

    def test_float16_partials_stagnate_and_float32_partials_do_not(self):
        """Adding ones stops at 2048 with float16 partials and blocks of one, and goes on with float32 partials."""
        ones = np.ones(4096, np.float16)

        assert numerics.dot(ones, ones, partials="float16", block=1) == 2048
        assert numerics.dot(ones, ones, partials="float32", block=1) == 4096

    def test_stochastic_partials_do_not_stagnate(self):
        """With stochastic rounding the same sum in float16 passes 2048 and stays near 4096.

        Only the 2048 additions past 2048 are inexact. Each errs with mean zero within an interval of one quantum, at
        most 4 below 8192, so by Azuma's inequality the error exceeds 4·sqrt(2048·ln(2/a)/2) with probability at most
        a = 1e-9. Stagnation at 2048 is an error of 2048, beyond that bound.
        """
        ones = np.ones(4096, np.float16)
        actual = float(numerics.dot(ones, ones, partials="float16", block=1, seed=11))

        bound = 4 * math.sqrt(2048 * math.log(2 / 1e-9) / 2)
        assert abs(actual - 4096) <= bound < 2048

    @pytest.mark.parametrize(
        ("left", "right"), [((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 2)), ((5, 1, 3, 4), (2, 4, 2))]
    )
    def test_shapes_follow_matmul(self, left, right):
        """Vectors, matrices and broadcast batches give the shapes and, for integers, the values of numpy.matmul."""
        a = np.arange(math.prod(left), dtype=np.float32).reshape(left)
        b = np.arange(math.prod(right), dtype=np.float32).reshape(right)

        expected = np.matmul(a, b)
        actual = numerics.dot(a, b, block=3)
        assert np.shape(actual) == np.shape(expected)
        np.testing.assert_array_equal(actual, expected)

    def test_an_empty_inner_dimension_gives_zeros(self):
        """A sum of nothing is zero."""
        actual = numerics.dot(np.ones((2, 0), np.float16), np.ones((0, 3), np.float16))

        np.testing.assert_array_equal(actual, np.zeros((2, 3)))

    @pytest.mark.parametrize("partials", numerics.PARTIALS)
    def test_overflow_of_partials(self, partials):
        """300·300 + 300·300 - 300·300 - 300·300 is zero in float32 partials; float16 partials saturate on the way."""
        a, b = np.full(4, 300, np.float16), np.array([300, 300, -300, -300], np.float16)
        actual = numerics.dot(a, b, partials=partials, block=1)

        # 0 → 65504 (saturated) → 65504 → 65504-90000 = -24496 → -65504 (saturated)
        assert actual == {"float32": 0, "float16": -HALF_MAX}[partials]

    def test_overflow_of_partials_traps(self):
        """The oflo trap names the op and the element of the result."""
        a = np.full((2, 3), 300, np.float16)
        with pytest.raises(NumericsError, match=r"^Gemm overflows float16 at index \(0, 0\)"):
            numerics.dot(a, a.T, partials="float16", traps=Traps(oflo=True), op="Gemm")

    def test_float32_overflow_traps(self):
        """A float32 product beyond the range is infinite, and traps when asked."""
        big = np.array([3e38], np.float32)
        assert np.isinf(numerics.dot(big, big))
        with pytest.raises(NumericsError, match="MatMul overflows float32"):
            numerics.dot(big, big, traps=Traps(oflo=True))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"a": np.ones(2, np.float64)}, "MatMul of float64 and float16"),
            ({"a": np.ones(2, np.float32)}, "MatMul of float32 and float16"),
            ({"partials": "float64"}, "partials of 'float64'; use one of float32, float16"),
            ({"block": 0}, "blocks of 0 terms"),
            ({"a": np.ones(16, np.float16), "b": np.ones(17, np.float16)}, r"shapes \(16,\) and \(17,\)"),
            ({"a": np.float16(1)}, r"shapes \(\) and \(2,\)"),
        ],
    )
    def test_refuses_what_the_device_cannot_do(self, arguments, message):
        """Operands of other or mixed types, unknown partials, empty blocks and unequal lengths are refused."""
        good = {"a": np.ones(2, np.float16), "b": np.ones(2, np.float16)}
        with pytest.raises(NumericsError, match=message):
            numerics.dot(**{**good, **arguments})

    def test_a_sum_has_the_same_partials(self):
        """``total`` sums one axis or everything, with float16 partials that stagnate."""
        ones = np.ones((2, 4096), np.float16)

        np.testing.assert_array_equal(numerics.total(ones, axis=1, partials="float16", block=1), [2048, 2048])
        np.testing.assert_array_equal(numerics.total(ones, axis=0), np.full(4096, 2))
        assert numerics.total(ones) == 8192


class TestNarrow:
    """What a host array becomes on its way to the device."""

    @at_most(100)
    @given(hnp.arrays(np.int64, 5, elements=st.integers(-(2**63), 2**63 - 1)))
    def test_int64_wraps_or_is_refused(self, exact):
        """Integers are kept modulo 2^32; with overflow="error" the first that does not fit is named."""
        actual = numerics.narrow(exact)

        assert actual.dtype == np.int32
        assert ((actual.astype(object) - exact.astype(object)) % 2**32 == 0).all()
        too_large = [i for i, value in enumerate(exact) if not -(2**31) <= value < 2**31]
        if too_large:
            first = too_large[0]
            with pytest.raises(NumericsError, match=rf"labels holds {exact[first]} at index \({first},\)"):
                numerics.narrow(exact, overflow="error", op="labels")
        else:
            np.testing.assert_array_equal(numerics.narrow(exact, overflow="error"), exact)

    @pytest.mark.parametrize(
        ("given_type", "expected"),
        [("uint64", "uint32"), ("float64", "float32"), ("complex128", "complex64"), ("int64", "int32")],
    )
    def test_64_bit_types(self, given_type, expected):
        """Every 64-bit type becomes its 32-bit counterpart."""
        actual = numerics.narrow(np.arange(3, dtype=given_type))

        assert actual.dtype == expected
        np.testing.assert_array_equal(actual, [0, 1, 2])

    @pytest.mark.parametrize("name", ["bool", "int8", "int32", "uint16", "float16", "float32"])
    def test_other_types_are_returned_as_they_are(self, name):
        """An array that the device can hold is the same object afterwards."""
        array = np.ones(2, name)

        assert numerics.narrow(array) is array

    def test_float64_is_rounded_and_may_become_infinite(self):
        """Float64 rounds to nearest; beyond float32 it is infinite, and traps when asked."""
        assert numerics.narrow(0.1) == np.float32(0.1)
        assert np.isinf(numerics.narrow(1e300))
        with pytest.raises(NumericsError, match=r"feed overflows float32 at index \(1,\)"):
            numerics.narrow([1.0, 1e300], traps=Traps(oflo=True))

    def test_bfloat16_is_widened_exactly(self):
        """A bfloat16 is the upper half of a float32."""
        values = np.array([1.0, -2.5, 0.0, np.inf, 2.0**-130], np.float32)
        bits = (values.view(np.uint32) >> 16).astype(np.uint16)

        np.testing.assert_array_equal(numerics.bfloat16_to_float32(bits), values)

    def test_bfloat16_arrays_are_recognised(self):
        """An array of the bfloat16 extension type becomes float32."""
        bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
        actual = numerics.narrow(np.array([1.5, -3.0], bfloat16))

        assert actual.dtype == np.float32
        np.testing.assert_array_equal(actual, [1.5, -3.0])

    def test_an_unknown_overflow_rule_is_refused(self):
        """Only wrap and error are rules."""
        with pytest.raises(NumericsError, match="use 'wrap' or 'error'"):
            numerics.narrow([1], overflow="clip")


ZERO, ONE, INF, NAN = (np.array([1.0, value], np.float32) for value in (0.0, 1.0, np.inf, np.nan))


class TestTraps:
    """Which conditions stop the program."""

    @pytest.mark.parametrize(
        ("op", "result", "inputs", "trap", "message"),
        [
            ("Sub", NAN, (INF, INF), "inv", "Sub has a result that is not a number"),
            ("Max", ONE, (NAN, ONE), "inv", "Max has an operand that is not a number"),
            ("Div", INF, (ONE, ZERO), "div0", "Div divides by zero"),
            ("Reciprocal", INF, (ZERO,), "div0", "Reciprocal divides by zero"),
            ("Log", INF, (ZERO,), "div0", "Log divides by zero"),
            ("Pow", INF, (ZERO, np.float32(-1)), "div0", "Pow divides by zero"),
            ("Mul", INF, (ONE, ONE), "oflo", "Mul overflows float32"),
            ("Div", INF, (ONE, ONE), "oflo", "Div overflows float32"),
        ],
    )
    def test_each_condition_has_its_trap(self, op, result, inputs, trap, message):
        """A condition stops the program when its own trap is on, naming op and index, and no other trap does."""
        with pytest.raises(NumericsError, match=message + r" at index \(1,\)"):
            numerics.check(op, result, *inputs, traps=Traps(**{trap: True}))
        others = {name: name != trap for name in ("inv", "div0", "oflo")}
        if not any(np.isnan(array).any() for array in (result, *inputs)):
            numerics.check(op, result, *inputs, traps=Traps(**others))
        numerics.check(op, result, *inputs, traps=Traps())

    def test_infinities_that_were_there_do_not_trap(self):
        """An infinite operand explains an infinite result, element by element or for a whole reduction."""
        every = Traps(div0=True, oflo=True)
        numerics.check("Add", INF, INF, ONE, traps=every)
        numerics.check("ReduceSum", np.array(np.inf, np.float32), np.stack([INF, ONE, ONE]), traps=every)
        with pytest.raises(NumericsError, match=r"Add overflows float32 at index \(1,\)"):
            numerics.check("Add", INF, INF[::-1], ONE, traps=every)

    def test_integers_never_trap(self):
        """Integer arrays have no floating-point conditions."""
        numerics.check("Add", np.array([1]), np.array([2]), traps=Traps(True, True, True, True))

    def test_finite_results_never_trap(self):
        """Ordinary values pass with every trap on."""
        numerics.check("Div", ONE, ONE, ONE, traps=Traps(True, True, True, True))


class TestFaults:
    """The hooks of the numerics are really there."""

    EXACT = np.array([1 + 0.9 * HALF.eps, -1 - 0.9 * HALF.eps, 3.3 * 2.0**-24])

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("round-toward-zero", np.array([1, -1, 3 * 2.0**-24], np.float16)),
            ("float16-subnormals-flushed", np.array([1 + HALF.eps, -1 - HALF.eps, 0], np.float16)),
            ("float32-instead-of-float16", EXACT.astype(np.float32)),
        ],
    )
    def test_rounding(self, name, expected):
        """A rounding fault changes what the cast gives."""
        with catalogue.inject(name):
            actual = numerics.to_float16(self.EXACT)

        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)

    def test_stochastic_rounding_off(self):
        """Under the fault a seeded cast gives the nearest value, overflow included."""
        exact = np.array([*self.EXACT, 1e9] * 50)
        with catalogue.inject("stochastic-rounding-off"):
            actual = numerics.to_float16(exact, seed=1)

        assert actual.tobytes() == numerics.to_float16(exact).tobytes()

    def test_partials(self):
        """Under the fault a product with float32 partials is that with float16 partials."""
        ones = np.ones(4096, np.float16)
        with catalogue.inject("float16-partials"):
            assert numerics.dot(ones, ones, partials="float32", block=1) == 2048

    @pytest.mark.parametrize("name", ["int64", "float64"])
    def test_narrowing(self, name):
        """Under the fault the 64-bit type of its name stays; the other is narrowed."""
        other = {"int64": "float64", "float64": "int64"}[name]
        with catalogue.inject(f"{name}-not-narrowed"):
            assert numerics.narrow(np.ones(2, name)).dtype == name
            assert numerics.narrow(np.ones(2, other)).dtype == other.replace("64", "32")
