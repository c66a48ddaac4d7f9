"""The loss curve as a PNG."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Sequence

from ipu_conformance.atomic_write import appearing
from ipu_conformance.workloads import WorkloadError


def can_draw() -> bool:
    """Whether the plotting library is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(
    costs: Sequence[float], validated: Sequence[int], validations: Sequence[float], title: str, path: Path
) -> None:
    """Draw the cost of every batch and the validation costs after ``validated`` batches, whole or not at all."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(range(1, len(costs) + 1), costs, color="grey", linewidth=0.5, label="cost of a batch")
    axes.plot(validated, validations, color="black", marker="o", label="validation cost, test set")
    axes.set_yscale("log")
    axes.set_xlabel("batches")
    axes.set_ylabel("cross entropy")
    axes.set_title(title)
    axes.legend()
    try:
        with appearing(path) as part:
            figure.savefig(str(part), format="png")
    except OSError as error:
        raise WorkloadError(f"the loss curve cannot be written to {path} ({error}); name another --folder") from error
