"""Are the tolerances right? A correct device must never fail, and one with one imprecise op should.

    python -m benchmarks.calibration [--seeds N] [--samples N] [--nets a,b] [--part runs|ops]

The device is PyTorch on the CPU, which shares no code with the oracle and none of its model of rounding. *Runs* trains
the suite's nets: once as PyTorch does, then with each layer in turn 4, 8 and 16 times less precise (2, 3 and 4 binary
digits fewer, forward and backward). *Ops* does the same with single ops, on samples that the table of ops draws: an
op that is 4 times less precise errs, in every result, by up to 4 times what is documented for one rounding of it.
It prints the tables of docs/calibration.md.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Dict, Iterator, List, Sequence, Tuple

import numpy as np
import torch

from benchmarks.calibration_device import DIGITS, TorchDevice
from ipu_conformance import check, nets
from ipu_conformance.ops import Inexpressible
from ipu_conformance.oracle.op import Op, Term, as_tuple
from ipu_conformance.oracle.ops import OPS
from ipu_conformance.oracle.sample import Sample, SeededChooser
from ipu_conformance.oracle.tolerance import ops as tolerance
from ipu_conformance.oracle.tolerance.runs import RunTolerance, for_run
from ipu_conformance.oracle.training.train import train
from ipu_conformance.run import RunConfig, RunRecord, learning_rate
from tests.unit.oracle.witnesses import TORCH

FACTORS = (4, 8, 16)
DTYPES = ("float32", "float16")
FIELDS = ("losses", "outputs", "weights", "gradients")
MOVEMENT = ("relu", "flatten", "max_pool")
"""Layers that round nothing, and therefore have no precision to lose."""
NARROW = ("adaptive_avg_pool", "conv_transpose", "prod", "scatter_add", "scatter_nd_add")
"""Ops whose float16 kernel in PyTorch keeps float16 partial sums on the CPU, as it equals such a sum bit by bit."""
CONFIG = RunConfig(device_iterations=2, gradient_accumulation=3, steps=2, learning_rate=learning_rate(base=0.05))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30, help="runs per net and dtype (%(default)s)")
    parser.add_argument("--first-seed", type=int, default=1000, help="the lowest seed (%(default)s)")
    parser.add_argument("--samples", type=int, default=30, help="samples per op and dtype (%(default)s)")
    parser.add_argument("--nets", default=",".join(nets.NETS), help="which nets (all)")
    parser.add_argument("--part", choices=("runs", "ops"), help="only one of the two experiments")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the nets are too small for more
    if args.part != "ops":
        runs(args.nets.split(","), range(args.first_seed, args.first_seed + args.seeds))
    if args.part != "runs":
        ops(range(args.first_seed, args.first_seed + args.samples))


def runs(names: Sequence[str], seeds: Sequence[int]) -> None:
    """Print, for each net and dtype, how often correct and imprecise devices fail."""
    print(f"| net | dtype | correct device fails | {' | '.join(f'{f} x less precise fails' for f in FACTORS)} |")
    print("|---|---|---|" + "---|" * len(FACTORS), flush=True)
    for name in names:
        for dtype in DTYPES:
            correct, imprecise = _net(nets.NETS[name](), dtype, seeds)
            cells = [_rate(sum(verdicts), len(verdicts)) for verdicts in imprecise.values()]
            print(f"| {name} | {dtype} | {correct} of {len(seeds)} | {' | '.join(cells)} |", flush=True)


def _net(net: nets.Net, dtype: str, seeds: Sequence[int]) -> Tuple[int, Dict[int, List[bool]]]:
    correct = 0
    imprecise: Dict[int, List[bool]] = {factor: [] for factor in FACTORS}
    layers = [layer.name for layer in net.layers if layer.op not in MOVEMENT]
    for seed in seeds:
        config = replace(CONFIG, seed=seed, dtype=dtype)
        data = nets.distinct_micro_batches(net, config, seed)
        exact, allowed = train(net, data, config), for_run(net, data, config)
        correct += _fails(TorchDevice(net, config).train(data), exact, allowed)
        # One layer a seed, in turn, so that seeds and layers are both covered in bearable time.
        layer = layers[seed % len(layers)]
        for factor, verdicts in imprecise.items():
            verdicts.append(_fails(TorchDevice(net, config, layer, factor).train(data), exact, allowed))
    return correct, imprecise


def _fails(actual: RunRecord, expected: RunRecord, allowed: RunTolerance) -> bool:
    try:
        check.runs_equivalent(actual=actual, expected=expected, tolerance=allowed, fields=FIELDS)
    except check.CheckFailure:
        return True
    return False


def ops(seeds: Sequence[int]) -> None:
    """Print, for each dtype, how often a correct op fails and how many ops are caught when imprecise."""
    print(f"| dtype | ops | correct op fails | {' | '.join(f'{f} x less precise caught' for f in FACTORS)} |")
    print("|---|---|---|" + "---|" * len(FACTORS), flush=True)
    for dtype in DTYPES:
        compared = asked = 0
        failed: List[str] = []
        caught: Dict[int, List[str]] = {factor: [] for factor in FACTORS}
        for op in OPS.values():
            verdicts = [_op(op, sample, dtype) for sample in _samples(op, dtype, seeds)]
            verdicts = [verdict for verdict in verdicts if verdict]
            if not verdicts:
                continue
            compared += 1
            asked += len(verdicts)
            failed += [op.name for verdict in verdicts if verdict[1]]
            for factor, names in caught.items():
                names += [op.name] if any(verdict[factor] for verdict in verdicts) else []
        cells = [f"{_rate(len(names), compared)} of ops" for names in caught.values()]
        print(f"| {dtype} | {compared} | {len(failed)} of {asked} | {' | '.join(cells)} |", flush=True)
        if failed:
            print(f"\nfail when correct, {dtype}: {', '.join(sorted(set(failed)))}\n", flush=True)


def _samples(op: Op, dtype: str, seeds: Sequence[int]) -> Iterator[Sample]:
    if op.name in TORCH.rows and (op.name, "outputs", dtype) not in TORCH.exceptions:
        for seed in seeds:
            yield op.draw(SeededChooser(seed)).rounded_to(dtype)


def _op(op: Op, sample: Sample, dtype: str) -> Dict[int, bool]:
    """Whether the op fails by factor, 1 for as PyTorch computes it; nothing where there is nothing to round."""
    expected = as_tuple(op.forward(*sample.inputs, **sample.attributes))
    accumulate = dtype if op.name in NARROW else None
    limits = tolerance.for_outputs(op, sample, dtype=dtype, accumulate=accumulate)
    if not any(np.any(limit.allowed) for limit in limits):
        return {}
    try:
        actual = TORCH.outputs(op.name, sample, dtype)
    except Inexpressible:
        return {}
    except RuntimeError as error:
        if "not implemented for" in str(error):  # PyTorch has no float16 kernel of this op on the CPU
            return {}
        raise
    terms = op.error(op.forward(*sample.inputs, **sample.attributes), *sample.inputs, **sample.attributes)
    verdicts = {1: _exceeded(limits, actual, expected)}
    for factor in FACTORS:
        coarse = tuple(_coarse(value, its, factor, dtype) for value, its in zip(actual, terms))
        verdicts[factor] = _exceeded(limits, coarse, expected)
    return verdicts


def _exceeded(
    limits: Sequence[tolerance.Tolerance], actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]
) -> bool:
    return any(limit.ratio(*pair) > 1.0 for limit, *pair in zip(limits, actual, expected))


def _coarse(value: np.ndarray, terms: Sequence[Term], factor: int, dtype: str) -> np.ndarray:
    """A result with errors, uniform up to ``factor`` times the largest that one rounding of the op may make."""
    if value.dtype.kind != "f" or not terms:
        return value
    largest = factor * max(term.ulps for term in terms) * 2.0 ** (1 - DIGITS[dtype])
    return value * (1.0 + largest * np.random.default_rng(factor).uniform(-1.0, 1.0, value.shape))


def _rate(number: int, total: int) -> str:
    return f"{number / total:.0%}" if total else "-"


if __name__ == "__main__":
    main()
