"""Optimizers, and what replaces one that is compiled in."""

from __future__ import annotations

from ipu_conformance.emulator.faults import refuse
from ipu_conformance.emulator.poptorch.refusals import ERROR

AMSGRAD = refuse(
    "poptorch.amsgrad",
    when=lambda amsgrad: amsgrad,
    error=ValueError,
    sentence="amsgrad is True: the device has no AMSGrad, use False",
)
FOREIGN_WEIGHTS = refuse(
    "poptorch.foreign-weights",
    when=lambda group, strangers: strangers,
    error=KeyError,
    sentence=lambda group, strangers: (
        f"Group {group} of the optimizer holds {len(strangers)} weights that are not the model's: use the parameters "
        "of the model that is trained"
    ),
)
UNKNOWN_ATTRIBUTE = refuse(
    "poptorch.unknown-attribute",
    when=lambda name, known: name not in known,
    error=AssertionError,
    sentence=lambda name, known: f"Attribute {name} cannot be marked: choose one of {', '.join(known)}",
)
STATE_OF_THE_HOST = refuse(
    "poptorch.state-of-the-host",
    when=lambda missing: missing,
    error=RuntimeError,
    sentence=lambda missing: (
        f"The state of the optimizer has no {missing[0]}: load what state_dict of a poptorch.optim optimizer gave"
    ),
)
ACCUMULATION_TYPE = refuse(
    "poptorch.accumulation-type",
    when=lambda name, value, types: value not in types,
    error=AssertionError,
    sentence="{name} is {value}: accumulation types must be either torch.float32 or torch.float16",
)
LATE_RUNNING_MEAN = refuse(
    "poptorch.late-running-mean",
    when=lambda before, now: now and not before,
    error=ValueError,
    sentence="The new optimizer needs the mean reduction strategy Running, but the model is already compiled with "
    "Post: set this optimizer before compiling, or set the strategy in the options",
)
OTHER_OPTIMIZER = refuse(
    "poptorch.other-optimizer",
    when=lambda before, now: before.kind != now.kind or len(before.groups) != len(now.groups),
    error=ERROR,
    sentence=lambda before, now: (
        f"The model is compiled with {before.kind} and {len(before.groups)} groups, the new optimizer is {now.kind} "
        f"with {len(now.groups)}: use the same kind of optimizer and the same groups"
    ),
)
CONSTANT_CHANGED = refuse(
    "poptorch.constant-changed",
    when=lambda name, where, before, now: before != now,
    error=ERROR,
    sentence="The attribute {name}{where} is compiled in as the constant {before} and cannot become {now}: mark it as "
    "variable, or pass it explicitly, before compiling",
)
