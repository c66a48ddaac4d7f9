"""Preflight: before thousands of cases, each framework is imported through its target and answers one tiny program.

A process of its own asks each framework, so that a crash or a hang of one is a sentence: ``python -m
ipu_conformance.report.preflight FRAMEWORK TARGET``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Callable, List, Sequence

from ipu_conformance.errors import ConformanceError
from ipu_conformance.selection import Selection
from ipu_conformance.targets import FRAMEWORKS, activate, devices_of, discover, identity_of

TIME_LIMIT = 180
"""Seconds in which a framework has to be imported and to answer."""
STEPS, MICRO_BATCH = 1, 3
ANSWERED = "ipu-conformance: answered"
"""What precedes an answer: a process that ends before it has none, whatever its exit code."""


class PreflightError(ConformanceError):
    """A target does not answer, so that no case could."""


def examine(selection: Selection, say: Callable[[str], None], *, time_limit: float = TIME_LIMIT) -> None:
    """Ask each framework of a selection; the first that does not answer is refused with a sentence."""
    targets = discover()
    for name in selection.frameworks:
        choice = selection.choice(name)
        target = str(choice.target if choice else None)
        devices_of(targets[target])
        identity_of(targets[target])
        begin = time.monotonic()
        require_answer(name, target, time_limit)
        say(f"preflight: {name} on {target} answers ({time.monotonic() - begin:.1f} s)")


def require_answer(name: str, target: str, time_limit: float) -> None:
    """Refuse a target on which a framework does not answer in time."""
    advice = f"see `ipu-conformance doctor --ipu-target {target}`, or leave {name} out with --frameworks"
    command = [sys.executable, "-m", "ipu_conformance.report.preflight", name, target]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=time_limit, check=False)
    except subprocess.TimeoutExpired:
        raise PreflightError(f"{name} on {target} gave no answer within {time_limit:g} s; {advice}.") from None
    if answer.returncode < 0:
        raise PreflightError(f"{name} on {target} died with signal {-answer.returncode}; {advice}.")
    if answer.returncode or ANSWERED not in answer.stdout:
        said = (answer.stderr.strip() or answer.stdout.strip() or "nothing was said").splitlines()[-1]
        raise PreflightError(f"{name} on {target} does not answer: {said.strip().rstrip('.')}; {advice}.")


def ask(name: str, target: str) -> List[float]:
    """Import a framework through its target and return what a linear layer gives for one micro-batch."""
    import numpy as np

    from ipu_conformance import frameworks, nets
    from ipu_conformance.frameworks.dialects import spoken
    from ipu_conformance.run import RunConfig

    activate(discover()[target], FRAMEWORKS[name])
    driver = frameworks.load(name)
    net = nets.NETS["linear"]()
    config = spoken(name, RunConfig(micro_batch=MICRO_BATCH, steps=STEPS).inference())
    outputs = driver.infer(net, config, nets.distinct_micro_batches(net, config)).outputs or ()
    values = np.asarray(outputs[0], np.float64) if len(outputs) else np.array([])
    if not values.size or values.size % MICRO_BATCH or not np.isfinite(values).all():
        raise PreflightError(f"a linear layer gave {values.tolist()} for {MICRO_BATCH} samples")
    return [float(value) for value in np.ravel(values)]


def main(arguments: Sequence[str]) -> int:
    """Ask, and print the answer or the reason why there is none."""
    try:
        print(ANSWERED, ask(*arguments))
    except Exception as error:  # whatever a target raises is the answer
        said = str(error).strip().splitlines()
        print(f"{type(error).__name__}: {said[0] if said else ''}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
