"""What the configuration of the IPU system and its environment refuse."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.faults import refuse

CONFIG = "ipu_conformance.emulator.tensorflow.config"


def _unknown(name: str, table: Any) -> str:
    meant = table.nearest(name)
    hint = f" Did you mean '{meant}'?" if meant else ""
    return f"'{name.rsplit('.', 1)[-1]}' is not a valid attribute of this config.{hint}"


def _is_whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _failed_precondition(sentence: str) -> BaseException:
    from tensorflow.python.framework import errors_impl

    error: BaseException = errors_impl.FailedPreconditionError(None, None, sentence)
    return error


# The attributes of a configuration

ATTRIBUTE_TYPE = refuse(
    "tensorflow.config-type",
    when=lambda attribute, value: not attribute.accepts(value),
    error=f"{CONFIG}.tree.AttributeTypeError",
    sentence="Trying to set {attribute.name} to {value!r}, but it must be of type {attribute.type}",
)
CATEGORY = refuse(
    "tensorflow.config-category",
    when=lambda name, categories: name in categories,
    error=f"{CONFIG}.tree.CategoryError",
    sentence="{name} is a category and cannot be assigned to.",
)
UNKNOWN_ATTRIBUTE = refuse(
    "tensorflow.config-unknown-attribute",
    when=lambda name, table: name not in table.rows,
    error=f"{CONFIG}.tree.UnknownAttributeError",
    sentence=_unknown,
)

# A configuration after a run

CONFIGURED_AFTER_A_RUN = refuse(
    "tensorflow.configured-after-a-run",
    when=lambda ran, changed: ran and changed,
    error=RuntimeError,
    sentence="The IPUs were configured otherwise after this session had run its graph: open another session.",
)

# The selection of IPUs

TWO_SELECTIONS = refuse(
    "tensorflow.config-two-selections",
    when=lambda by_number, by_id: by_number and by_id,
    error=f"{CONFIG}.ipu_config.SelectionError",
    sentence="Only one of `auto_select_ipus` and `select_ipus` can be set.",
)
MODEL_IDS = refuse(
    "tensorflow.config-model-ids",
    when=lambda use_ipu_model: use_ipu_model,
    error=f"{CONFIG}.ipu_config.SelectionError",
    sentence="When using the IPUModel, the IPUs cannot be chosen with `select_ipus`: set their number with "
    "`auto_select_ipus`.",
)
UNKNOWN_ID = refuse(
    "tensorflow.config-unknown-id",
    when=lambda identifier, known: not 0 <= identifier < known,
    error=f"{CONFIG}.system.NoSuchDevice",
    sentence=lambda identifier, known: (f"There is no IPU device with the id {identifier}; ids are 0 to {known - 1}."),
)
TOO_MANY_IPUS = refuse(
    "tensorflow.config-too-many-ipus",
    when=lambda asked, there: asked > there,
    error=f"{CONFIG}.system.NoSuchDevice",
    sentence="{asked} IPUs were asked for in all; the system has {there}.",
)

# The configuration in force

NOT_CONFIGURATION = refuse(
    "tensorflow.config-of-another-type",
    when=lambda config, kinds: not isinstance(config, kinds),
    error=f"{CONFIG}.ipu_config.ConfigurationTypeError",
    sentence="`config` is {config!r} of type {config.__class__.__name__}; pass an IPUConfig or IpuOptions.",
)
CONFIGURED_ONCE = refuse(
    "tensorflow.config-once",
    when=lambda replaceable: not replaceable,
    error=_failed_precondition,
    sentence="IPU system configuration can only be set once: reset it with reset_ipu_configuration().",
)
NOT_CONFIGURED = refuse(
    "tensorflow.not-configured",
    when=lambda configured: not configured,
    error=f"{CONFIG}.system.NotConfigured",
    sentence="No IPU devices configured.",
)
NO_SUCH_DEVICE = refuse(
    "tensorflow.no-such-device",
    when=lambda device, devices: not 0 <= device < devices,
    error=f"{CONFIG}.system.NoSuchDevice",
    sentence="There is no device /device:IPU:{device}: {devices} are configured, counted from 0.",
)

# The environment

UNKNOWN_SWITCH = refuse(
    "tensorflow.environment-unknown-switch",
    when=lambda word, name, known, **_: not word.startswith("--") or name not in known,
    error=f"{CONFIG}.environment.EnvironmentVariableError",
    sentence=lambda word, name, known, variable: (
        f"{variable} holds {word!r}, which is not a switch; use {', '.join('--' + switch for switch in known)}."
    ),
)
UNKNOWN_CATEGORY = refuse(
    "tensorflow.environment-unknown-category",
    when=lambda given, known, **_: set(given) - set(known),
    error=f"{CONFIG}.environment.EnvironmentVariableError",
    sentence=lambda given, known, variable: (
        f"{variable} names the synthetic data category {min(set(given) - set(known))!r}; use {', '.join(known)}."
    ),
)
SWITCH_WITHOUT_VALUE = refuse(
    "tensorflow.environment-switch-without-value",
    when=lambda value, **_: value is None,
    error=f"{CONFIG}.environment.EnvironmentVariableError",
    sentence="{variable} gives --{name} no value; write --{name}=VALUE.",
)
NUMBER_SWITCH = refuse(
    "tensorflow.environment-number",
    when=lambda value, **_: not _is_whole(value),
    error=f"{CONFIG}.environment.EnvironmentVariableError",
    sentence="{variable} sets --{name} to {value!r}; use a whole number.",
)
BOOLEAN_SWITCH = refuse(
    "tensorflow.environment-boolean",
    when=lambda value, known, **_: value.lower() not in known,
    error=f"{CONFIG}.environment.EnvironmentVariableError",
    sentence="{variable} sets {name} to {value!r}; use true or false.",
)
ENGINE_OPTIONS = refuse(
    "tensorflow.environment-engine-options",
    when=lambda read, **_: not isinstance(read, dict),
    error=f"{CONFIG}.environment.EnvironmentVariableError",
    sentence="{variable} is {text!r}; write a JSON object of option names and values.",
)
