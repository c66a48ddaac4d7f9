"""What options do to the program, to its data and to what is said about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance

from ..exact import assert_same
from ..ir.dumped import BY_NAME, compiled, options_of, read
from ..lazily import torch
from ..on_device import as_model, infer

SHARE = "availableMemoryProportion"
PRODUCTS = ("MatMul", "Conv")
"""What the types of products and convolutions, and of their gradients, begin with."""
NAN = float("nan")


def _trained(poptorch: Any, options: Any, x: float) -> Any:
    """A linear layer after two steps on inputs that all are ``x``, and what the last step returned."""
    torch.manual_seed(7)
    layer = torch.nn.Linear(3, 2)
    model = as_model(lambda model, x, y: (model.layer(x), model.loss(model.layer(x), y)), layer=layer)
    model.loss = torch.nn.CrossEntropyLoss()
    trainer = poptorch.trainingModel(model, options, poptorch.optim.Adam(model.parameters(), lr=0.1))
    for _ in range(2):
        returned = trainer(torch.full((4, 3), x), torch.tensor([0, 1, 1, 0]))
    trainer.copyWeightsToHost()
    trainer.destroy()
    return layer.weight.detach(), returned


def _products(poptorch: Any, model: Any, options: Any) -> List[Any]:
    """The matrix products of a compiled model of two features."""
    inference = poptorch.inferenceModel(model, options)
    inference.compile(torch.ones(1, 2))
    return [op for op in read(inference).ops if op.type == "MatMul"]


@pytest.mark.parametrize("shares", [{0: 0.25, 1: 0.5}, {1: 0.5}], ids=["both", "one"])
def test_products_carry_the_share_of_their_ipu(poptorch: Any, shares: Any) -> None:
    """Matrix products and convolutions carry the memory share of their own IPU, if it has one, in both passes."""
    setup = BY_NAME["pipelined-2"]
    proportions = {f"IPU{ipu}": share for ipu, share in shares.items()}
    options = options_of(poptorch, setup).setAvailableMemoryProportion(proportions)
    products = [op for op in read(compiled(setup, options=options)).ops if op.type.startswith(PRODUCTS)]

    expected = {(ipu, shares.get(ipu)) for ipu in (0, 1)}
    actual = {(op.ipu, op.attributes.get(SHARE)) for op in products}
    check.equal(actual=actual, expected=expected, what="the set of the products' IPUs and shares")


def test_the_share_of_an_operation_wins(poptorch: Any, torch: Any) -> None:
    """What set_available_memory gives to one product counts more than what its IPU has."""

    def forward(model: Any, x: Any) -> Any:
        return model.second(poptorch.set_available_memory(model.first(x), 0.125))

    layers = {"first": torch.nn.Linear(2, 2), "second": torch.nn.Linear(2, 2)}
    options = poptorch.Options().setAvailableMemoryProportion({"IPU0": 0.5})
    products = _products(poptorch, as_model(forward, **layers), options)

    shares = {op.name.split("/")[0]: op.attributes[SHARE] for op in products}
    check.equal(actual=shares, expected={"first": 0.125, "second": 0.5}, what="the share of each layer's product")


def test_name_scopes_stay_without_the_names_of_modules(poptorch: Any, torch: Any) -> None:
    """disableModuleNamescope takes the modules out of the names of operations, not the user's own scopes."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.NameScope("mine"):
            return model.layer(x)

    model = as_model(forward, layer=torch.nn.Linear(2, 2))
    (product,) = _products(poptorch, model, poptorch.Options().disableModuleNamescope())

    check.contains(actual=product.name, expected="mine", what="the name of the product")
    check.lacks(actual=product.name, unexpected="layer", what="the name of the product")


@pytest.mark.parametrize("enabled", [False, True])
def test_synthetic_data_keeps_the_host_out(poptorch: Any, enabled: bool) -> None:
    """With synthetic data the inputs of the host do not reach the device: its NaN cannot spoil the weights."""
    weight, _ = _trained(poptorch, poptorch.Options().enableSyntheticData(enabled), NAN)

    check.equal(actual=bool(weight.isfinite().all()), expected=enabled, what="whether the weights stay finite")


def test_synthetic_data_keeps_shapes_and_types(poptorch: Any) -> None:
    """What a call returns looks the same with synthetic data, whatever its values are."""
    _, real = _trained(poptorch, poptorch.Options(), 1.0)
    _, synthetic = _trained(poptorch, poptorch.Options().enableSyntheticData(True), 1.0)

    actual, expected = ([(leaf.shape, leaf.dtype) for leaf in each] for each in (synthetic, real))
    check.equal(actual=actual, expected=expected, what="the shape and type of all that a call returns")


def test_the_program_is_exported(poptorch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """POPTORCH_EXPORT_PROTO_FILE names a file, in folders that are made, that holds the model as ONNX."""
    import onnx

    path = tmp_path / "deep" / "folder" / "model.onnx"
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", str(path))
    compiled(BY_NAME["training"])
    files = [entry.name for entry in path.parent.iterdir()]
    check.equal(actual=files, expected=["model.onnx"], what="the list of the files")
    types = {node.op_type for node in onnx.load(str(path)).graph.node}

    for kind in ("Conv", "MatMul", "Relu"):
        check.contains(actual=types, expected=kind, what="the set of the ops in the file")


@pytest.mark.parametrize("show", [False, True])
def test_no_bar_is_drawn_into_a_file(poptorch: Any, said: Any, show: bool) -> None:
    """Output that is not a terminal gets no progress bar, even where one is asked for."""
    options = options_of(poptorch, BY_NAME["inference"]).showCompilationProgressBar(show)
    compiled(BY_NAME["inference"], options=options)

    check.lacks(actual=said(), unexpected="%|", what="what is printed")


@pytest.mark.parametrize("how", ["sourceLocationExcludes", "appendToLocationExcludes"])
def test_an_excluded_file_is_not_named(poptorch: Any, torch: Any, said: Any, how: str) -> None:
    """Neither an error nor a line of the log says that an operation comes from a file that is excluded."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.Block("inside", ipu_id=0):
            x = x + 1
        return x * 2

    here = Path(__file__).name
    options = poptorch.Options()
    options = options.sourceLocationExcludes([here]) if how.startswith("source") else getattr(options, how)(here)
    level = poptorch.logger.level
    poptorch.setLogLevel("DEBUG")
    try:
        with check.raises(poptorch.Error, match="No active Block", what="an operation outside a block") as raised:
            infer(poptorch, forward, torch.ones(1, 2), options=options)
    finally:
        poptorch.logger.setLevel(level)

    check.lacks(actual=f"{raised.value} {said()}", unexpected=here, what="the error and the log")


def test_a_stable_norm_is_exact_far_from_zero(poptorch: Any, torch: Any) -> None:
    """The variance of values near 1000 is that of the same values near 0.

    Each output is x * a - mean * a for a = 1 / sqrt(var + eps), which is below 1: four roundings, in two products, a
    and the difference, of at most eps / 2 of 1001 each. The difference of the mean square and the squared mean would
    lose 1e6 * eps, a hundred times as much.
    """
    near = torch.tensor([[-1.0], [1.0], [1.0], [-1.0]])
    norm = torch.nn.BatchNorm1d(1, affine=False).train()
    options = poptorch.Options().enableStableNorm(True)
    normed: List[Any] = [
        infer(poptorch, lambda model, x: model.norm(x), near + offset, options=options.clone(), norm=norm)
        for offset in (0.0, 1000.0)
    ]

    allowed = Tolerance(np.array(2 * 4 * FORMATS["float32"].unit * 1001), "four roundings of 1001 in each of two", 0.0)
    check.close(actual=normed[1], expected=normed[0], tolerance=allowed, what="the norm of values near 1000")


def test_values_do_not_depend_on_tensor_locations(poptorch: Any) -> None:
    """Weights and optimizer state off the chip train to the same bits."""
    off = poptorch.TensorLocationSettings().minElementsForOffChip(0).useOnChipStorage(False)
    options = poptorch.Options()
    options.TensorLocations.setOptimizerLocation(off)

    weight, expected = (_trained(poptorch, each, 1.0)[0] for each in (options, poptorch.Options()))
    assert_same(weight, expected, "the weight with its optimizer state off the chip")
