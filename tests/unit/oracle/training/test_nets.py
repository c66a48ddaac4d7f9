"""The small nets are consistent data, and their data is distinct."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_conformance.nets import INPUT, NETS, distinct_micro_batches, mlp
from ipu_conformance.run import RunConfig, RunError

every_net = pytest.mark.parametrize("name", NETS)


@every_net
def test_layers_read_what_is_there(name: str) -> None:
    """A layer reads earlier layers or the input, and weights that the net declares; nothing is unused."""
    net = NETS[name]()
    known, used, declared = {INPUT}, set(), {weight.name for weight in net.weights}
    for layer in net.layers:
        assert set(layer.inputs) <= known
        assert set(layer.weights) <= declared
        used |= {*layer.inputs, *layer.weights}
        known.add(layer.name)

    assert len(known) == len(net.layers) + 1
    assert used == known - {net.layers[-1].name} | declared


@every_net
def test_initial_weights_are_exact_in_float16(name: str) -> None:
    """Weights have their declared names and shapes and lose nothing when they are narrowed."""
    net = NETS[name]()
    weights = net.initial_weights(seed=1)

    assert {name: weight.shape for name, weight in weights.items()} == {row.name: row.shape for row in net.weights}
    for weight in weights.values():
        np.testing.assert_array_equal(weight, weight.astype(np.float16).astype(np.float64))


def test_initial_weights_depend_on_the_seed_and_the_name() -> None:
    """One seed gives one net; another seed, or another weight of the same shape, gives other values."""
    first, again, other = (mlp().initial_weights(seed) for seed in (1, 1, 2))

    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
        assert not np.any(first[name] == other[name])
    assert not np.any(first["fc2.bias"][:8] == first["fc3.bias"])


@every_net
def test_cuts_number_the_layers_in_order(name: str) -> None:
    """A net is cut at natural places only, into exactly as many stages as asked, none of them empty."""
    net = NETS[name]()
    places = sum(layer.cut_before for layer in net.layers)
    for stages in range(1, places + 2):
        cut = net.cut(stages)
        assert RunConfig(stages=cut).number_of_stages == stages
        assert all(layer.cut_before for layer, before, after in zip(net.layers[1:], cut, cut[1:]) if before != after)
    with pytest.raises(RunError, match=f"^{name} cannot be cut into {places + 2} stages: give 1 to {places + 1}.$"):
        net.cut(places + 2)


def test_most_nets_make_four_stages() -> None:
    """Four stages are possible wherever a net has four layers with weights."""
    four = {name for name, make in NETS.items() if sum(layer.cut_before for layer in make().layers) >= 3}

    assert four == {"mlp", "convnet", "bn_convnet", "residual", "tied_weights", "resnet", "transformer", "unet"}


@every_net
def test_every_micro_batch_differs(name: str) -> None:
    """No two micro-batches of a run are the same, the data is exact in float16, and tokens repeat in every sample."""
    net, config = NETS[name](), RunConfig(device_iterations=2, gradient_accumulation=3, replicas=5, steps=2)
    data = distinct_micro_batches(net, config)
    batches = data.inputs.reshape(config.steps * config.micro_batches, -1)

    assert data.inputs.shape == (2, 60, *net.input_shape)
    assert data.labels.shape == (2, 60, *net.label_shape)
    assert set(np.unique(data.labels)) == set(range(net.classes))
    assert len(np.unique(batches, axis=0)) == len(batches)
    np.testing.assert_array_equal(batches, batches.astype(np.float16).astype(np.float64))
    if net.tokens:
        samples = data.inputs.reshape(-1, *net.input_shape)
        assert data.inputs.dtype == np.int64
        assert set(np.unique(samples)) == set(range(net.tokens))
        assert all(len(np.unique(sample)) < sample.size for sample in samples)
