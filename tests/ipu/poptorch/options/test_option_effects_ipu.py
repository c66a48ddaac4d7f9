"""What options do to the program, to its data and to what is said about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import pytest

from ..ir.dumped import BY_NAME, compiled, options_of, read
from ..on_device import as_model, infer

SHARE = "availableMemoryProportion"
PRODUCTS = ("MatMul", "Conv")
"""What the types of products and convolutions, and of their gradients, begin with."""
NAN = float("nan")


def _trained(poptorch: Any, options: Any, x: float) -> Any:
    """A linear layer after two steps on inputs that all are ``x``, and what the last step returned."""
    import torch

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


@pytest.mark.parametrize("shares", [{0: 0.25, 1: 0.5}, {1: 0.5}], ids=["both", "one"])
def test_products_carry_the_share_of_their_ipu(poptorch: Any, shares: Any) -> None:
    """Matrix products and convolutions carry the memory share of their own IPU, if it has one, in both passes."""
    setup = BY_NAME["pipelined-2"]
    proportions = {f"IPU{ipu}": share for ipu, share in shares.items()}
    options = options_of(poptorch, setup).setAvailableMemoryProportion(proportions)
    products = [op for op in read(compiled(setup, options=options)).ops if op.type.startswith(PRODUCTS)]

    assert {(op.ipu, op.attributes.get(SHARE)) for op in products} == {(ipu, shares.get(ipu)) for ipu in (0, 1)}


def test_the_share_of_an_operation_wins(poptorch: Any, torch: Any) -> None:
    """What set_available_memory gives to one product counts more than what its IPU has."""

    def forward(model: Any, x: Any) -> Any:
        return model.second(poptorch.set_available_memory(model.first(x), 0.125))

    layers = {"first": torch.nn.Linear(2, 2), "second": torch.nn.Linear(2, 2)}
    model = poptorch.inferenceModel(
        as_model(forward, **layers), poptorch.Options().setAvailableMemoryProportion({"IPU0": 0.5})
    )
    model.compile(torch.ones(1, 2))
    shares = {op.name.split("/")[0]: op.attributes[SHARE] for op in read(model).ops if op.type == "MatMul"}

    assert shares == {"first": 0.125, "second": 0.5}


def test_name_scopes_stay_without_the_names_of_modules(poptorch: Any, torch: Any) -> None:
    """disableModuleNamescope takes the modules out of the names of operations, not the user's own scopes."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.NameScope("mine"):
            return model.layer(x)

    model = poptorch.inferenceModel(
        as_model(forward, layer=torch.nn.Linear(2, 2)), poptorch.Options().disableModuleNamescope()
    )
    model.compile(torch.ones(1, 2))
    names = [op.name for op in read(model).ops if op.type == "MatMul"]

    assert names
    assert all("mine" in name and "layer" not in name for name in names)


@pytest.mark.parametrize("enabled", [False, True])
def test_synthetic_data_keeps_the_host_out(poptorch: Any, enabled: bool) -> None:
    """With synthetic data the inputs of the host do not reach the device: its NaN cannot spoil the weights."""
    weight, _ = _trained(poptorch, poptorch.Options().enableSyntheticData(enabled), NAN)

    assert bool(weight.isfinite().all()) is enabled


def test_synthetic_data_keeps_shapes_and_types(poptorch: Any) -> None:
    """What a call returns looks the same with synthetic data, whatever its values are."""
    _, real = _trained(poptorch, poptorch.Options(), 1.0)
    _, synthetic = _trained(poptorch, poptorch.Options().enableSyntheticData(True), 1.0)

    assert [(leaf.shape, leaf.dtype) for leaf in synthetic] == [(leaf.shape, leaf.dtype) for leaf in real]


def test_the_program_is_exported(poptorch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """POPTORCH_EXPORT_PROTO_FILE names a file that holds the model as ONNX once it is compiled, and nothing else."""
    import onnx

    path = tmp_path / "model.onnx"
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", str(path))
    compiled(BY_NAME["training"])
    types = {node.op_type for node in onnx.load(str(path)).graph.node}

    assert {"Conv", "MatMul", "Relu"} <= types
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("show", [False, True])
def test_no_bar_is_drawn_into_a_file(poptorch: Any, said: Any, show: bool) -> None:
    """Output that is not a terminal gets no progress bar, even where one is asked for."""
    options = options_of(poptorch, BY_NAME["inference"]).showCompilationProgressBar(show)
    compiled(BY_NAME["inference"], options=options)

    assert "%|" not in said()


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
        with pytest.raises(poptorch.Error, match="No active Block") as raised:
            infer(poptorch, forward, torch.ones(1, 2), options=options)
    finally:
        poptorch.logger.setLevel(level)

    assert here not in str(raised.value)
    assert here not in said()


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

    assert float((normed[1] - normed[0]).abs().max()) <= 2 * 4 * torch.finfo(torch.float32).eps / 2 * 1001


def test_values_do_not_depend_on_tensor_locations(poptorch: Any) -> None:
    """Weights and optimizer state off the chip train to the same bits."""
    off = poptorch.TensorLocationSettings().minElementsForOffChip(0).useOnChipStorage(False)
    options = poptorch.Options()
    options.TensorLocations.setOptimizerLocation(off)

    assert _trained(poptorch, options, 1.0)[0].equal(_trained(poptorch, poptorch.Options(), 1.0)[0])
