"""A picture of runs inside the band of their baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from ipu_conformance.oracle.convergence.baseline import Baseline, BaselineError


def plot(baseline: Baseline, runs: Sequence[Sequence[float]], path: Path) -> None:
    """Draw the band, the reference runs and ``runs`` into the file at ``path``; its suffix chooses the format."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise BaselineError("a plot needs matplotlib; install ipu-conformance[plot] or leave --plot out") from None
    band = baseline.band(max(len(runs), 1))
    epochs = [row.epoch for row in band.epochs]
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.fill_between(
        epochs,
        [row.low for row in band.epochs],
        [row.high for row in band.epochs],
        alpha=0.25,
        label=f"allowed (false-alarm rate {band.false_alarm_rate:g})",
    )
    for number, values in enumerate(baseline.values):
        axes.plot(epochs, values, color="grey", linewidth=0.5, label=None if number else f"{band.seeds} seeds")
    for number, run in enumerate(runs):
        axes.plot(epochs[: len(run)], run, color="black", marker="o", label=None if number else "run")
    axes.set_xlabel("epoch")
    axes.set_ylabel(baseline.metric)
    axes.set_xticks(epochs)
    axes.set_title(baseline.workload)
    axes.legend()
    try:
        figure.savefig(str(path))
    except (OSError, ValueError) as error:
        raise BaselineError(f"the plot cannot be written to {path}: {error}") from error
