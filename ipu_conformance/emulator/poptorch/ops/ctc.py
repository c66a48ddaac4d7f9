"""The CTC loss with lengths that are known on the device, and the decoder of networks that are trained with it."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import torch

from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.refusals import ops as refusals

Prefix = Tuple[int, ...]


@torch.library.custom_op(
    "ipu_poptorch::ctc_beam_search",
    mutates_args=(),
    schema="(Tensor probs, Tensor lengths, int blank, int beam_width, int top_paths) -> (Tensor, Tensor, Tensor)",
)
def ctc_beam_search(
    probs: torch.Tensor, lengths: torch.Tensor, blank: int, beam_width: int, top_paths: int
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The log probabilities, the lengths and the labels of the best paths of every sequence."""
    steps, batch, _ = probs.shape
    logs = probs.detach().to(torch.float64).numpy()
    best = np.full((batch, top_paths), -np.inf)
    counts = np.zeros((batch, top_paths), np.int32)
    labels = np.full((batch, top_paths, steps), blank, np.int32)
    for row in range(batch):
        paths = decode(logs[: int(lengths[row]), row], blank, beam_width)[:top_paths]
        for place, (prefix, score) in enumerate(paths):
            best[row, place] = score
            counts[row, place] = len(prefix)
            labels[row, place, : len(prefix)] = prefix
    return torch.from_numpy(best).to(probs.dtype), torch.from_numpy(counts), torch.from_numpy(labels)


@ctc_beam_search.register_fake
def _(probs: torch.Tensor, lengths: torch.Tensor, blank: int, beam_width: int, top_paths: int) -> Any:
    steps, batch, _ = probs.shape
    return (
        probs.new_empty((batch, top_paths)),
        probs.new_empty((batch, top_paths), dtype=torch.int32),
        probs.new_empty((batch, top_paths, steps), dtype=torch.int32),
    )


def decode(logs: np.ndarray, blank: int, beam_width: int) -> List[Tuple[Prefix, float]]:
    """Prefix beam search over [step, class] log probabilities: label sequences and their scores, best first.

    A prefix collects the probability of every alignment that collapses to it, apart by whether the alignment ends in
    a blank: only then does a repeated label count as a new one.
    """
    beams: Dict[Prefix, Tuple[float, float]] = {(): (0.0, -np.inf)}
    for step in logs:
        grown: Dict[Prefix, List[float]] = {}

        def add(prefix: Prefix, kind: int, score: float, grown: Dict[Prefix, List[float]] = grown) -> None:
            scores = grown.setdefault(prefix, [-np.inf, -np.inf])
            scores[kind] = float(np.logaddexp(scores[kind], score))

        for prefix, (after_blank, after_label) in beams.items():
            total = float(np.logaddexp(after_blank, after_label))
            add(prefix, 0, total + step[blank])
            for label, log in enumerate(step):
                if label == blank:
                    continue
                if _repeats(label, prefix):
                    add(prefix, 1, after_label + log)
                    add((*prefix, label), 1, after_blank + log)
                else:
                    add((*prefix, label), 1, total + log)
        ranked = sorted(grown.items(), key=lambda item: (-np.logaddexp(item[1][0], item[1][1]), item[0]))
        beams = {prefix: (scores[0], scores[1]) for prefix, scores in ranked[:beam_width]}
    return [(prefix, float(np.logaddexp(*scores))) for prefix, scores in beams.items()]


def _repeats(label: int, prefix: Prefix) -> bool:
    return bool(prefix) and label == prefix[-1]


def ctc_beam_search_decoder(
    probs: torch.Tensor, lengths: torch.Tensor, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> List[torch.Tensor]:
    """Decode [step, batch, class] log probabilities of sequences of these lengths; for inference only.

    The result is [batch, top_paths] log probabilities, [batch, top_paths] lengths and [batch, top_paths, step] labels,
    best first; labels beyond a path's length are blank.
    """
    for value in (probs, lengths):
        refusals.TENSOR(name="ctc_beam_search_decoder", value=value, kind=torch.Tensor)
    if probs.dim() != 3:
        raise Error(f"Probabilities of {probs.dim()} dimensions were given: use [step, batch, class]")
    refusals.CTC_LENGTHS(lengths=list(lengths.shape), batch=probs.shape[1])
    refusals.CTC_BLANK(blank=blank, classes=probs.shape[2])
    if not isinstance(beam_width, int) or beam_width < 1:
        raise Error(f"The beam width {beam_width!r} was given: use 1 or more")
    refusals.CTC_TOP_PATHS(paths=top_paths, width=beam_width)
    return list(ctc_beam_search(probs, lengths, blank, beam_width, top_paths))


@torch.library.custom_op(
    "ipu_poptorch::ctc_loss",
    mutates_args=(),
    schema="(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, "
    "bool zero_infinity) -> (Tensor, Tensor)",
)
def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int,
    zero_infinity: bool,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """The loss of every sequence and, for its gradient, the logarithms of the forward probabilities."""
    loss, alpha = torch.ops.aten._ctc_loss.Tensor(
        log_probs, targets.long(), input_lengths.long(), target_lengths.long(), blank, zero_infinity
    )
    if zero_infinity:
        loss = torch.where(loss.isinf(), torch.zeros_like(loss), loss)
    return loss, alpha


@_ctc_loss.register_fake
def _(log_probs: torch.Tensor, targets: torch.Tensor, *_: Any) -> Tuple[torch.Tensor, torch.Tensor]:
    steps, batch, _ = log_probs.shape
    longest = targets.shape[1] if targets.dim() == 2 else targets.shape[0]
    return log_probs.new_empty((batch,)), log_probs.new_empty((batch, steps, 2 * longest + 1))


def _remember(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    log_probs, targets, input_lengths, target_lengths, ctx.blank, ctx.zero_infinity = inputs
    ctx.save_for_backward(log_probs, targets, input_lengths, target_lengths, *output)


def _backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Tuple[Any, ...]:
    log_probs, targets, input_lengths, target_lengths, loss, alpha = ctx.saved_tensors
    change = torch.ops.aten._ctc_loss_backward.Tensor(
        gradient.contiguous(), log_probs, targets.long(), input_lengths.long(), target_lengths.long(), loss, alpha,
        ctx.blank, ctx.zero_infinity,
    )  # fmt: skip
    return change, None, None, None, None, None


_ctc_loss.register_autograd(_backward, setup_context=_remember)


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Any = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """torch's loss, for lengths that are tensors on the device or numbers."""
    if log_probs.dim() != 3 or targets.dim() != 2:
        raise Error("A CTC loss on the device needs log_probs of [step, batch, class] and targets of [batch, label]")
    input_lengths, target_lengths = (_on_device(lengths) for lengths in (input_lengths, target_lengths))
    loss, _ = _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    if reduction in ("mean", 1):
        return (loss / target_lengths.clamp(min=1).to(loss.dtype)).mean()
    return loss.sum() if reduction in ("sum", 2) else loss


def _on_device(lengths: Any) -> torch.Tensor:
    return lengths if isinstance(lengths, torch.Tensor) else torch.tensor(lengths, dtype=torch.int32)
