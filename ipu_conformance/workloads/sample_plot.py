"""Some samples of a data set with the names of their classes, as a PNG."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Sequence

from ipu_conformance.atomic_write import appearing
from ipu_conformance.data import Split
from ipu_conformance.workloads import WorkloadError

NAME = "samples.png"
ROWS, COLUMNS = 2, 5


def can_draw() -> bool:
    """Whether the plotting library is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(split: Split, names: Sequence[str], title: str, path: Path) -> None:
    """Draw the first samples, each below the name of its class; the file is whole or not there at all."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.4 * COLUMNS, 1.6 * ROWS + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    shown = zip(split.images, split.labels, figure.subplots(ROWS, COLUMNS, squeeze=False).flat)
    for image, label, axes in shown:
        axes.imshow(image[:, :, 0] if image.shape[-1] == 1 else image, cmap="gray")
        axes.set_title(names[int(label)], fontsize="small")
    for axes in figure.axes:
        axes.set_axis_off()
    try:
        with appearing(path) as part:
            figure.savefig(str(part), format="png")
    except OSError as error:
        raise WorkloadError(f"the samples cannot be drawn to {path} ({error}); name another --folder") from error
