"""The optimizers of ipu_tensorflow_addons: dtypes of their own for the computation and for the state.

Rules are those of graphcore/ipu_tensorflow_addons ``ipu_tensorflow_addons/keras/optimizers``. All numbers are exact:
what an update is follows by hand. How weights move in a fit is compared with the oracle in ``training``.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check

RATE = 0.125
FINE = 2.0**-12
"""A float16 of 1 plus this is 1; a float32 is not."""
HALVES = {"beta_1": 0.5, "beta_2": 0.75, "epsilon": 1.0, "debiasing": False}
"""Moments of exact numbers; an epsilon of 1 makes the divisor 2 where the mean of squares is 1."""

Updates = Callable[..., Tuple[Any, List[Any]]]


@pytest.fixture
def addons(tf: Any, ipu: Any) -> Any:
    """The module of the optimizers."""
    pytest.importorskip("ipu_tensorflow_addons", reason="the vendor's package of add-ons is not installed")
    return pytest.importorskip("ipu_tensorflow_addons.keras.optimizers")


@pytest.fixture
def updates(tf: Any, addons: Any, strategy: Any) -> Updates:
    """Updates variables, by their names, with gradients one after the other; the optimizer and the variables."""

    def run(name: str, settings: Dict[str, Any], gradients: Sequence[Any], starts: Dict[str, Any]) -> Any:
        with strategy.scope():
            variables = [tf.Variable(start, name=word, dtype=tf.float32) for word, start in starts.items()]
            optimizer = getattr(addons, name)(RATE, **settings)

            @tf.function
            def update(gradient: Any) -> None:
                optimizer.apply_gradients([(gradient, variable) for variable in variables])

            for gradient in gradients:
                strategy.run(update, [tf.constant(gradient, tf.float32)])
        return optimizer, variables

    return run


def check_values(variables: Sequence[Any], expected: Sequence[Any], what: str) -> None:
    """The variables have these bits."""
    __tracebackhide__ = True
    for variable, value in zip(variables, expected):
        check.identical(actual=variable.numpy(), expected=np.full(variable.shape, value, np.float32), what=what)


@pytest.mark.parametrize("outlined", [False, True], ids=["inline", "outlined"])
@pytest.mark.parametrize("nesterov", [False, True], ids=["heavy", "nesterov"])
def test_a_velocity_in_half_precision_moves_the_weight_in_full(
    tf: Any, updates: Updates, nesterov: bool, outlined: bool
) -> None:
    """The velocity is computed in float32, moves the weight so, and is kept in float16; outlining changes nothing."""
    settings = {
        "momentum": 0.5, "nesterov": nesterov, "momentum_accum_dtype": tf.float16,
        "outline_apply_gradients": outlined, "outline_apply_gradients_kwargs": {"unique_sharding": outlined},
    }  # fmt: skip
    optimizer, variables = updates("SGDIpuOptimizer", settings, [1 + FINE, 1.0, 0.5], {"w": 1.0})

    weight, kept = 1.0, 0.0
    for gradient in (1 + FINE, 1.0, 0.5):
        velocity = 0.5 * kept - RATE * gradient
        weight += 0.5 * velocity - RATE * gradient if nesterov else velocity
        kept = float(np.float16(velocity))
    (slot,) = [optimizer.get_slot(variable, "momentum") for variable in variables]
    check_values(variables, [weight], "the weight after three updates")
    kept_slot = slot.dtype.name, float(slot)
    check.equal(actual=kept_slot, expected=("float16", kept), what="the velocity's dtype and value")


SLOTS: Dict[str, Tuple[str, Dict[str, Any], Dict[str, str]]] = {
    "variable": ("AdamIpuOptimizer", {}, {"m": "float32", "v": "float32"}),
    "moments": ("AdamIpuOptimizer", {"m_dtype": "float16", "v_dtype": "float32"}, {"m": "float16", "v": "float32"}),
    "largest": ("AdamIpuOptimizer", {"amsgrad": True, "v_dtype": "float16", "vhat_dtype": "float16"},
                {"m": "float32", "v": "float16", "vhat": "float16"}),
    "lamb": ("LAMBIpuOptimizer", {"v_dtype": "float16"}, {"m": "float32", "v": "float16"}),
}  # fmt: skip
"""An optimizer, its dtypes, and those of its slots."""


@pytest.mark.parametrize("row", SLOTS)
def test_a_slot_has_the_dtype_that_was_asked_for(tf: Any, updates: Updates, row: str) -> None:
    """Each part of the state has its own dtype, which is the variable's where none was asked for."""
    name, settings, expected = SLOTS[row]
    settings = {key: tf.as_dtype(value) if key.endswith("dtype") else value for key, value in settings.items()}
    optimizer, variables = updates(name, settings, [1.0], {"first": 1.0, "second": [1.0, 2.0, 3.0]})

    for variable in variables:
        dtypes = {slot: optimizer.get_slot(variable, slot).dtype.name for slot in expected}
        check.equal(actual=dtypes, expected=expected, what=f"the dtypes of the slots of {variable.name}")


CHANGES: Dict[str, Tuple[str, Dict[str, Any], Sequence[Any], List[float], float]] = {
    # Means are freed of their start at zero: of gradients of 2 and of their squares they are 2 and 4 from the first on.
    "adam-debiased": ("AdamIpuOptimizer", {"debiasing": True, "epsilon": 2.0}, [[2.0] * 4] * 3, [0.0] * 4, 3 * 2 / 4),
    "lamb-debiased": ("LAMBIpuOptimizer", {"debiasing": True, "epsilon": 2.0}, [[2.0] * 4], [0.0] * 4, 2 / 4),
    # After gradients of 2 and 0 the mean of squares has been 1 and 0.75, and the largest of them is 1 twice.
    "amsgrad": ("AdamIpuOptimizer", {"amsgrad": True}, [[2.0], [0.0]], [1.0], 1 / 2 + 0.5 / 2),
    # The change is scaled to the norm of its weight, which is at most the clip; its own norm is 0.5 for each element.
    "small-weight": ("LAMBIpuOptimizer", {}, [[2.0] * 4], [0.25] * 4, 0.5 * 0.5),
    "small-change": ("LAMBIpuOptimizer", {}, [[2.0]], [2.0], 4.0 * 0.5),
    "clipped": ("LAMBIpuOptimizer", {"weight_norm_clip": 3.0}, [[2.0] * 4], [2.0] * 4, 3.0 * 0.5),
    "below-the-clip": ("LAMBIpuOptimizer", {"weight_norm_clip": 8.0}, [[2.0] * 4], [2.0] * 4, 4.0 * 0.5),
    "weight-of-zero": ("LAMBIpuOptimizer", {}, [[2.0] * 4], [0.0] * 4, 0.5),  # the change as it is
}
"""An optimizer, settings beside the halves, gradients, a weight, and what it loses after them, over the rate."""


@pytest.mark.parametrize("row", CHANGES)
def test_a_weight_changes_as_specified(updates: Updates, row: str) -> None:
    """Means of gradients and of squares, norms and clips make the change of a weight."""
    name, settings, gradients, start, change = CHANGES[row]
    _, variables = updates(name, {**HALVES, **settings}, gradients, {"w": start})

    check_values(variables, [start[0] - RATE * change], "the weight after all updates")


def test_without_amsgrad_the_last_mean_of_squares_counts(updates: Updates) -> None:
    """Adam divides by the root of 0.75 where AMSGrad divides by the root of 1."""
    _, (weight,) = updates("AdamIpuOptimizer", HALVES, [2.0, 0.0], {"w": 1.0})

    check.differs(actual=float(weight), other=1 - RATE * (1 / 2 + 0.5 / 2), what="the weight after both updates")


def test_names_are_excluded_from_decay_and_adaptation(updates: Updates) -> None:
    """LAMB scales a change to the norm of its variable and adds decay, each but for names that match a pattern.

    A gradient of 2 is a change of 0.5, whose norm is 1 over four elements; that of a weight of 2 is 4. The scaled
    change points along the weight with and without decay.
    """
    settings = {
        **HALVES, "weight_decay_rate": 0.25,
        "exclude_from_weight_decay": ["norm", "bias$"], "exclude_from_layer_adaptation": ["norm", "^out"],
    }  # fmt: skip
    changes = {
        "dense/kernel": RATE * 4 * 0.5, "out/kernel": RATE * 1.0, "norm/gamma": RATE * 0.5,
        "block/norm/beta": RATE * 0.5, "out/bias": RATE * 0.5, "dense/bias": RATE * 4 * 0.5,
    }  # fmt: skip
    start = [2.0] * 4
    _, variables = updates("LAMBIpuOptimizer", settings, [[2.0] * 4], dict.fromkeys(changes, start))

    check_values(variables, [2 - change for change in changes.values()], "a weight after one update")


@pytest.mark.parametrize(
    ("precisions", "mean"), [(("float16", "float32"), 1.0), (("float32", "float16"), 1 + FINE)], ids=["moments", "rate"]
)
def test_lamb_computes_in_two_dtypes(tf: Any, updates: Updates, precisions: Tuple[str, str], mean: float) -> None:
    """Moments and the change are computed in the first, and the change is multiplied with the rate in the second.

    In float16 a gradient just above 2 is 2, and a change just above 0.5 is 0.5; in float32 neither is.
    """
    settings = {
        **HALVES, "exclude_from_layer_adaptation": ["w"],
        "optimizer_compute_precisions": tuple(map(tf.as_dtype, precisions)),
    }  # fmt: skip
    optimizer, variables = updates("LAMBIpuOptimizer", settings, [2 * (1 + FINE)], {"w": 1.0})

    check_values(variables, [1 - RATE * 0.5], "the weight after one update")
    check.equal(actual=float(optimizer.get_slot(variables[0], "m")), expected=mean, what="the mean of gradients")


@pytest.mark.parametrize(("name", "settings"), [
    ("SGDIpuOptimizer", {"momentum": 0.5, "nesterov": True, "momentum_accum_dtype": "float16"}),
    ("AdamIpuOptimizer", {"m_dtype": "float16", "debiasing": False, "amsgrad": True, "epsilon": 0.5}),
    ("LAMBIpuOptimizer", {"weight_decay_rate": 0.25, "v_dtype": "float16", "debiasing": False, "beta_1": 0.5}),
])  # fmt: skip
def test_an_optimizer_is_made_again_from_its_configuration(addons: Any, name: str, settings: Dict[str, Any]) -> None:
    """A configuration holds every setting, those of the add-ons among them."""
    wanted = {"learning_rate": RATE, "outline_apply_gradients": True, **settings}
    first = getattr(addons, name)(**wanted)
    config = type(first).from_config(first.get_config()).get_config()

    check.equal(actual={key: config.get(key) for key in wanted}, expected=wanted, what=f"the settings of a {name}")
    check.equal(actual=config, expected=first.get_config(), what=f"the configuration of a {name} made again")


def test_two_dtypes_are_needed_for_lamb(tf: Any, addons: Any) -> None:
    """LAMB computes in one dtype and multiplies with the rate in another."""
    with check.raises(ValueError, match="two", what="LAMBIpuOptimizer with one dtype"):
        addons.LAMBIpuOptimizer(optimizer_compute_precisions=(tf.float32,))


@pytest.mark.parametrize("name", ["SGD", "Adam", "LAMB"])
def test_sparse_gradients_are_refused(tf: Any, addons: Any, name: str) -> None:
    """The add-ons have no update for some rows of a variable."""
    table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    rows = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([1]), tf.constant([3, 2]))

    settings = {"momentum": 0.5} if name == "SGD" else {}
    with check.raises(NotImplementedError, match="", what=f"{name} with sparse gradients"):
        getattr(addons, f"{name}IpuOptimizer")(RATE, **settings).apply_gradients([(rows, table)])


def test_a_change_of_zero_is_not_scaled(updates: Updates) -> None:
    """Where the norm of the change is 0 LAMB leaves the weight as it is."""
    _, variables = updates("LAMBIpuOptimizer", HALVES, [[0.0] * 4] * 2, {"w": [2.0] * 4})

    check_values(variables, [2.0], "a weight after two gradients of zero")


def test_the_largest_mean_is_free_of_its_start(updates: Updates) -> None:
    """AMSGrad keeps the largest of the debiased means of squares: 4 after a gradient of 2, not 1."""
    settings = {**HALVES, "debiasing": True, "epsilon": 2.0, "amsgrad": True}
    optimizer, variables = updates("AdamIpuOptimizer", settings, [2.0], {"w": 0.0})

    check_values(variables, [-RATE * 2 / (2 + 2)], "the weight after one update")
    check.equal(actual=float(optimizer.get_slot(variables[0], "vhat")), expected=4.0, what="the largest mean")
