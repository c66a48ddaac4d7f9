"""ctc_beam_search_decoder: against the sum over all alignments, written out."""

from __future__ import annotations

import itertools
import math
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance

from ..lazily import poptorch, torch
from ..on_device import infer


def _logs(steps: int, batch: int, classes: int, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(steps, batch, classes, generator=generator) * 2).log_softmax(2)


def _all_paths(logs: Sequence[Sequence[float]], blank: int) -> List[Tuple[Tuple[int, ...], float]]:
    """Every label sequence and the log of the sum of the probabilities of its alignments, best first."""
    classes = range(len(logs[0]))
    sums: Dict[Tuple[int, ...], float] = {}
    for alignment in itertools.product(classes, repeat=len(logs)):
        merged = [label for label, _ in itertools.groupby(alignment)]
        labels = tuple(label for label in merged if label != blank)
        probability = math.exp(math.fsum(step[label] for step, label in zip(logs, alignment)))
        sums[labels] = sums.get(labels, 0.0) + probability
    return sorted(((labels, math.log(total)) for labels, total in sums.items()), key=lambda item: -item[1])


def _decode(logs: Any, lengths: Sequence[int], **settings: Any) -> Any:
    """Decode on the device; its first dimension is the batch, so the logs change places on the way in."""

    def forward(model: Any, logs: Any, lengths: Any) -> Any:
        return tuple(poptorch.ctc_beam_search_decoder(logs.transpose(0, 1), lengths, **settings))

    return infer(poptorch, forward, logs.transpose(0, 1).contiguous(), torch.tensor(lengths, dtype=torch.int32))


def _assert_paths(decoded: Any, row: int, logs: Any, blank: int, top: int) -> None:
    """The best paths of a row of the batch, and their scores, are those of the sum over all alignments."""
    __tracebackhide__ = True
    scores, lengths, labels = (each[row] for each in decoded)
    for place, (path, score) in enumerate(_all_paths(logs.tolist(), blank)[:top]):
        actual, what = tuple(labels[place, : lengths[place]].tolist()), f"path {place} of row {row}"
        check.equal(actual=actual, expected=path, what=what)
        # Each step rounds a sum of two logs to float32; the logs are at most as large as the result's own size.
        spacings = np.array(8 * len(logs) * FORMATS["float32"].unit * max(1.0, abs(score)))
        allowed = Tolerance(spacings, f"four spacings of float32 for each of {len(logs)} steps", 0.0)
        check.close(actual=scores[place], expected=score, tolerance=allowed, what=f"the score of {what}")


@pytest.mark.parametrize("blank", [0, 1, 2])
@pytest.mark.parametrize("lengths", [(4, 4, 4), (6,), (1, 1), (2, 5)], ids=str)
def test_a_wide_beam_finds_the_best_paths(blank: int, lengths: Sequence[int]) -> None:
    """With a beam that holds everything, a sequence has the paths of the sum over all alignments of its length."""
    logs = _logs(max(lengths), len(lengths), 3, seed=max(lengths) + 10 * blank)
    decoded = _decode(logs, lengths, blank=blank, beam_width=800, top_paths=3)

    for row, steps in enumerate(lengths):
        _assert_paths(decoded, row, logs[:steps, row], blank, top=3)


@pytest.mark.parametrize(
    ("alignment", "beam_width", "expected"),
    [
        pytest.param([1, 1, 0, 1, 2, 2], 20, [1, 1, 2], id="repeated"),
        pytest.param([2, 0, 1, 1], 1, [2, 1], id="beam-of-one"),
    ],
)
def test_repeated_labels_merge_unless_a_blank_is_between(
    alignment: List[int], beam_width: int, expected: List[int]
) -> None:
    """The certain alignment a a blank a b b reads a a b; the narrowest beam finds a certain path too."""
    steps = len(alignment)
    logs = torch.full((steps, 1, 3), math.log(2.0**-20))
    logs[range(steps), 0, alignment] = math.log(1 - 2.0**-19)
    _, lengths, labels = _decode(logs, [steps], beam_width=beam_width, top_paths=1)

    check.equal(actual=labels[0, 0, : lengths[0, 0]].tolist(), expected=expected, what="the decoded path")


def test_the_shapes_are_those_of_batch_paths_and_steps() -> None:
    """Probabilities and lengths are [batch, paths], labels [batch, paths, steps]; integers are 32 bits wide."""
    scores, lengths, labels = _decode(_logs(5, 2, 4, seed=9), [5, 4], beam_width=30, top_paths=3)

    actual = [(tuple(each.shape), each.dtype) for each in (scores, lengths, labels)]
    expected = [((2, 3), torch.float32), ((2, 3), torch.int32), ((2, 3, 5), torch.int32)]
    check.equal(actual=actual, expected=expected, what="the shape and type of scores, lengths and labels")
    check.holds((scores[:, :-1] >= scores[:, 1:]).all(), f"the scores {scores.tolist()} are not in descending order.")


@pytest.mark.parametrize(
    "wrong",
    [{"blank": 3}, {"blank": -1}, {"beam_width": 0}, {"top_paths": 0}, {"beam_width": 2, "top_paths": 3}],
    ids=str,
)
def test_settings_must_fit(wrong: Any) -> None:
    """A blank outside the classes, an empty beam, and more paths than the beam holds are refused."""
    with check.raises(poptorch.Error, what=f"decoding with {wrong}"):
        _decode(_logs(4, 1, 3, seed=1), [4], **wrong)
