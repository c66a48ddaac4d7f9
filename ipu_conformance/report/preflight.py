"""Preflight: before thousands of cases, each framework is imported through its target and answers one tiny program.

It answers on one IPU, and then on all that the run may use: a target that offers more than it has is found out here. A
process of its own asks each framework, so that a crash or a hang of one is a sentence: ``python -m
ipu_conformance.report.preflight FRAMEWORK TARGET IPUS``.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from typing import Callable, Iterator, List, Optional, Sequence

from ipu_conformance.errors import ConformanceError
from ipu_conformance.selection import Selection
from ipu_conformance.targets import FRAMEWORKS, Target, activate, devices_of, discover, identity_of
from ipu_conformance.workers.leases import Leases

TIME_LIMIT = 180
"""Seconds in which a framework has to be imported and to answer."""
PATIENCE = 600.0
"""Seconds to wait for devices that other processes hold."""
STEPS, MICRO_BATCH = 1, 3
ANSWERED = "ipu-conformance: answered"
"""What precedes an answer: a process that ends before it has none, whatever its exit code."""


class PreflightError(ConformanceError):
    """A target does not answer, so that no case could."""


def examine(
    selection: Selection,
    say: Callable[[str], None],
    frameworks: Optional[Sequence[str]] = None,
    *,
    time_limit: float = TIME_LIMIT,
) -> None:
    """Ask each framework of a selection, or some; the first that does not answer is refused with a sentence."""
    targets = discover()
    for name in selection.frameworks if frameworks is None else frameworks:
        choice = selection.choice(name)
        target = targets[str(choice.target if choice else None)]
        identity_of(target)
        # What a vendor's model of an IPU has to say of replicas is not documented.
        ipus = 1 if target.kind == "ipu-model" else selection.ipus(name)
        with _all_devices(target):
            begin = time.monotonic()
            require_answer(name, target.name, ipus, time_limit)
        on = f"{ipus} IPU{'s' if ipus > 1 else ''}"
        say(f"preflight: {name} on {target.name} answers on {on} ({time.monotonic() - begin:.1f} s)")


@contextlib.contextmanager
def _all_devices(target: Target) -> Iterator[None]:
    """Hold all devices that a target names inside the block."""
    names = list(devices_of(target))
    with contextlib.ExitStack() as held:
        if names:
            held.enter_context(Leases(target.name, names).of(names, len(names), PATIENCE, "a preflight"))
        yield


def require_answer(name: str, target: str, ipus: int, time_limit: float) -> None:
    """Refuse a target on which a framework does not answer in time."""
    advice = f"see `ipu-conformance doctor --ipu-target {target}`, or leave {name} out with --ipu-frameworks"
    command = [sys.executable, "-m", "ipu_conformance.report.preflight", name, target, str(ipus)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=time_limit, check=False)
    except subprocess.TimeoutExpired:
        raise PreflightError(f"{name} on {target} gave no answer within {time_limit:g} s; {advice}.") from None
    if answer.returncode < 0:
        raise PreflightError(f"{name} on {target} died with signal {-answer.returncode}; {advice}.")
    if answer.returncode or ANSWERED not in answer.stdout:
        said = (answer.stderr.strip() or answer.stdout.strip() or "nothing was said").splitlines()[-1]
        raise PreflightError(f"{name} on {target} does not answer: {said.strip().rstrip('.')}; {advice}.")


def ask(name: str, target: str, ipus: int = 1) -> List[float]:
    """Import a framework through its target and return what a linear layer gives on so many IPUs, a replica on each."""
    import numpy as np

    from ipu_conformance import frameworks, nets
    from ipu_conformance.frameworks.dialects import spoken
    from ipu_conformance.run import RunConfig

    activate(discover()[target], FRAMEWORKS[name])
    driver = frameworks.load(name)
    net = nets.NETS["linear"]()
    config = spoken(name, RunConfig(micro_batch=MICRO_BATCH, steps=STEPS, replicas=ipus).inference())
    outputs = driver.infer(net, config, nets.distinct_micro_batches(net, config)).outputs or ()
    values = np.asarray(outputs[0], np.float64) if len(outputs) else np.array([])
    samples = MICRO_BATCH * ipus
    if not values.size or values.size % samples or not np.isfinite(values).all():
        raise PreflightError(f"a linear layer gave {values.tolist()} for {samples} samples")
    return [float(value) for value in np.ravel(values)]


def main(arguments: Sequence[str]) -> int:
    """Ask, and print the answer or the reason why there is none."""
    name, target, offered = arguments
    where = ""
    try:
        answers = [ask(name, target)]
        # Replicas come in powers of two.
        ipus = 1 << (int(offered).bit_length() - 1)
        where = f"on {ipus} of the {offered} IPUs that it offers, "
        answers.append(ask(name, target, ipus))
        print(ANSWERED, answers)
    except Exception as error:  # whatever a target raises is the answer
        said = str(error).strip().splitlines()
        print(f"{where}{type(error).__name__}: {said[0] if said else ''}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
