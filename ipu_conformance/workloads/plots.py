"""What workloads draw as PNGs: some samples of a data set, and the loss curve of a run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, Sequence, Tuple

from ipu_conformance.atomic_write import replacing
from ipu_conformance.data import CLASS_NAMES, Split, load
from ipu_conformance.workloads import WorkloadError

SAMPLES, CURVE = "samples.png", "loss.png"
ROWS, COLUMNS = 2, 5


def can_draw() -> bool:
    """Whether the plotting library is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def show_samples(data: str, folder: Path) -> None:
    """Draw the first training samples to the folder, or say why not."""
    if not can_draw():
        _say_not_drawn("No samples are drawn")
        return
    path = folder / SAMPLES
    draw_samples(load(data, train=ROWS * COLUMNS, test=0).train, CLASS_NAMES[data], data, path)
    print(f"Drew some samples to {path}", flush=True)


def draw_samples(split: Split, names: Sequence[str], title: str, path: Path) -> None:
    """Draw the first samples, each below the name of its class."""
    figure = _figure(1.4 * COLUMNS, 1.6 * ROWS + 0.4)
    figure.suptitle(title)
    shown = zip(split.images, split.labels, figure.subplots(ROWS, COLUMNS, squeeze=False).flat)
    for image, label, axes in shown:
        axes.imshow(image[:, :, 0] if image.shape[-1] == 1 else image, cmap="gray")
        axes.set_title(names[int(label)], fontsize="small")
    for axes in figure.axes:
        axes.set_axis_off()
    _write(figure, path, f"the samples cannot be drawn to {path}")


def show_loss_curve(costs: Sequence[float], validations: Sequence[Tuple[int, float]], title: str, folder: Path) -> None:
    """Draw the loss curve to the folder, or say why not."""
    if not can_draw():
        _say_not_drawn("No loss curve is drawn")
        return
    path = folder / CURVE
    draw_loss_curve(costs, validations, title, path)
    print(f"Drew the loss curve to {path}")


def draw_loss_curve(costs: Sequence[float], validations: Sequence[Tuple[int, float]], title: str, path: Path) -> None:
    """Draw the cost of every batch, and validation costs after numbers of batches."""
    figure = _figure(7.0, 4.5)
    axes = figure.add_subplot()
    axes.plot(range(1, len(costs) + 1), costs, color="grey", linewidth=0.5, label="cost of a batch")
    axes.plot(*zip(*validations), color="black", marker="o", label="validation cost, test set")
    axes.set_yscale("log")
    axes.set_xlabel("batches")
    axes.set_ylabel("cross entropy")
    axes.set_title(title)
    axes.legend()
    _write(figure, path, f"the loss curve cannot be written to {path}")


def _say_not_drawn(what: str) -> None:
    print(f"{what}: matplotlib is not installed; pip install 'ipu-conformance[plot]'", file=sys.stderr)


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _write(figure: Any, path: Path, failure: str) -> None:
    """Write a PNG that is whole or not there at all."""
    try:
        with replacing(path) as part:
            figure.savefig(str(part), format="png")
    except OSError as error:
        raise WorkloadError(f"{failure} ({error}); name another --folder") from error
