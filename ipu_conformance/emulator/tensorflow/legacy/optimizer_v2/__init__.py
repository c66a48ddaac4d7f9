"""``keras.optimizer_v2``, where Keras had its optimizers until 2.10; it calls their modules legacy today."""

from __future__ import annotations

import sys

from ipu_conformance.emulator.tensorflow import legacy
from ipu_conformance.emulator.tensorflow.keras import library

MODULES = {
    **{
        name: f"optimizers.legacy.{name}"
        for name in ("adadelta", "adagrad", "adam", "adamax", "ftrl", "gradient_descent", "nadam", "optimizer_v2")
    },
    "rmsprop": "optimizers.legacy.rmsprop",
    "learning_rate_schedule": "optimizers.schedules.learning_rate_schedule",
}
"""Where each module is today."""

legacy.entered("keras.optimizer_v2")
for _name, _place in MODULES.items():
    globals()[_name] = sys.modules[f"{__name__}.{_name}"] = library.module(_place)
