"""Options that are set, or set again."""

from __future__ import annotations

from ipu_conformance.emulator.faults import refuse

FROZEN = refuse(
    "poptorch.frozen-options",
    when=lambda frozen, name: frozen,
    error=AttributeError,
    sentence="Can't modify frozen Options: {name} is set after the options were used; clone them",
)
UNKNOWN_OPTION = refuse(
    "poptorch.unknown-option",
    when=lambda name, known: name not in known,
    error=AssertionError,
    sentence=lambda name, known: f"Invalid option {name}: must be one of {', '.join(sorted(known))}",
)
OPTION_TYPE = refuse(
    "poptorch.option-type",
    # A bool is an int to Python, but True device iterations are a mistake.
    when=lambda name, value, types: (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)),
    error=AssertionError,
    sentence=lambda name, value, types: (
        f"Invalid type {type(value).__name__} for option {name}: must be {' or '.join(kind.__name__ for kind in types)}"
    ),
)
OPTION_VALUE = refuse(
    "poptorch.option-value",
    when=lambda name, value, rule: not rule.holds(value),
    error=AssertionError,
    sentence="Invalid value {value!r} for option {name}: must be {rule.words}",
)
NO_REDUCTION = refuse(
    "poptorch.no-reduction",
    # A member is an int to Python, but the number of one is a mistake.
    when=lambda reduction, allowed: all(reduction is not member for member in allowed),
    error=ValueError,
    sentence="{reduction!r} was given: gradients are reduced by ReductionType.Sum or ReductionType.Mean",
)
PARTIALS_TYPE = refuse(
    "poptorch.partials-type",
    when=lambda dtype, allowed: dtype not in allowed,
    error=ValueError,
    sentence="{dtype} was given to setPartialsType: use torch.float32 or torch.float16",
)
TRACING = refuse(
    "poptorch.tracing",
    when=lambda trace: trace is True,
    error=ValueError,
    sentence="traceModel(True) was given: models are no longer traced; remove the call",
)
