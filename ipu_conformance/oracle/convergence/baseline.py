"""Baseline files: the values of reference runs, what they can decide, and how to make them again, under a digest."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ipu_conformance.atomic_write import replacing
from ipu_conformance.oracle.convergence.band import Band, ConvergenceError, band

SCHEMA = "ipu-conformance/baseline"
VERSION = 1
SHIPPED = Path(__file__).parents[2] / "baselines"
"""The folder of the baselines that come with the package."""

_MOST_BYTES = 50_000_000
_TYPES: Dict[str, Tuple[type, ...]] = {
    "schema": (str,),
    "version": (int,),
    "workload": (str,),
    "metric": (str,),
    "budget": (dict,),
    "seeds": (list,),
    "values": (list,),
    "false_alarm_rate": (float,),
    "power": (float,),
    "band": (list,),
    "regenerate": (str,),
    "environment": (dict,),
    "digest": (str,),
}


class BaselineError(ConvergenceError):
    """A baseline file cannot be trusted or written."""


@dataclass(frozen=True)
class Baseline:
    """The recorded distribution of reference runs of one workload and budget."""

    workload: str
    metric: str
    budget: Mapping[str, Any]
    seeds: Tuple[int, ...]
    values: Tuple[Tuple[float, ...], ...]
    """One row for each seed, one value for each epoch."""
    false_alarm_rate: float
    power: float
    regenerate: str
    """The command that records the baseline again."""
    environment: Mapping[str, str]

    def band(self, runs: int = 1) -> Band:
        """The band of the mean of ``runs`` runs, computed from the values and not read from the file."""
        return band(self.values, false_alarm_rate=self.false_alarm_rate, power=self.power, runs=runs)

    def to_json(self) -> str:
        """The file's text, with what the baseline detects written out and the digest over all of it."""
        content: Dict[str, Any] = {
            "schema": SCHEMA,
            "version": VERSION,
            "workload": self.workload,
            "metric": self.metric,
            "budget": dict(self.budget),
            "seeds": list(self.seeds),
            "values": [list(row) for row in self.values],
            "false_alarm_rate": self.false_alarm_rate,
            "power": self.power,
            "band": [
                {
                    "epoch": row.epoch,
                    "mean": row.mean,
                    "low": row.low,
                    "high": row.high,
                    "detectable_shift": row.detectable_shift,
                }
                for row in self.band().epochs
            ],
            "regenerate": self.regenerate,
            "environment": dict(self.environment),
        }
        content["digest"] = digest(content)
        return json.dumps(content, indent=1, allow_nan=False) + "\n"

    def save(self, path: Path) -> None:
        """Write the file in one piece: a reader sees the old one or the new one, whole."""
        write_atomically(path, self.to_json())


def digest(content: Mapping[str, Any]) -> str:
    """SHA-256 over everything but the digest itself, independent of layout and order of keys."""
    covered = {key: value for key, value in content.items() if key != "digest"}
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def load(path: Path) -> Baseline:
    """The baseline in a file, or by name one that comes with the package; anything doubtful is refused."""
    path = find(path)
    content = _content(path)
    for key, types in _TYPES.items():
        if key not in content:
            raise BaselineError(f"{path} has no {key!r}; record it again")
        if not isinstance(content[key], types):
            raise BaselineError(f"{path} has a {key!r} of type {type(content[key]).__name__}; record it again")
    if (content["schema"], content["version"]) != (SCHEMA, VERSION):
        version = f"{' '.join(content['schema'].split())[:80]} version {content['version']}"
        raise BaselineError(f"{path} is {version}, and this program reads {SCHEMA} version {VERSION}; record it again")
    expected = digest(content)
    if content["digest"] != expected:
        raise BaselineError(
            f"{path} was edited: its content has digest {expected[:15]}… and it states {content['digest'][:15]}…; "
            f"record it again with: {content['regenerate']}"
        )
    wrong = [seed for seed in content["seeds"] if isinstance(seed, bool) or not isinstance(seed, int)]
    if wrong:
        raise BaselineError(f"{path} has a seed {wrong[0]!r}, which is not a whole number; record it again")
    result = Baseline(
        workload=content["workload"],
        metric=content["metric"],
        budget=content["budget"],
        seeds=tuple(content["seeds"]),
        values=_rows(path, content["values"]),
        false_alarm_rate=content["false_alarm_rate"],
        power=content["power"],
        regenerate=content["regenerate"],
        environment=content["environment"],
    )
    if len(set(result.seeds)) != len(result.values):
        seeds = len(set(result.seeds))
        raise BaselineError(f"{path} has {seeds} different seeds for {len(result.values)} rows of values")
    try:
        result.band()
    except ConvergenceError as error:
        raise BaselineError(f"{path} cannot be used: {error}") from error
    return result


def find(path: Path) -> Path:
    """The file itself, or the one of that name that comes with the package."""
    shipped = SHIPPED / f"{path}.json"
    if not path.exists() and path.name == str(path) and shipped.exists():
        return shipped
    return path


def shipped_names() -> List[str]:
    """The names of the baselines that come with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))


def environment() -> Dict[str, str]:
    """What the values may depend on: the versions and the machine that record them."""
    import numpy as np

    from ipu_conformance import __version__

    return {
        "ipu_conformance": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
    }


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` beside ``path`` and move it there in one step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BaselineError(f"{path} cannot be written: {error.strerror}") from error


def _content(path: Path) -> Dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BaselineError(f"{path} has {path.stat().st_size:,} bytes, which no baseline has")
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        names = ", ".join(shipped_names()) or "none"
        raise BaselineError(f"{path} cannot be read: {error.strerror}; shipped baselines: {names}") from error
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"{path} is not a JSON baseline: {error}; record it again") from error
    if not isinstance(content, dict):
        raise BaselineError(f"{path} holds a {type(content).__name__} and no baseline; record it again")
    return content


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it has the value {name}")


def _rows(path: Path, rows: Sequence[Any]) -> Tuple[Tuple[float, ...], ...]:
    for number, row in enumerate(rows):
        if not isinstance(row, list) or any(isinstance(x, bool) or not isinstance(x, (int, float)) for x in row):
            raise BaselineError(f"{path} has no list of numbers in row {number} of its values; record it again")
    try:
        return tuple(tuple(float(value) for value in row) for row in rows)
    except OverflowError:
        raise BaselineError(f"{path} has a value that no float can hold; record it again") from None


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
