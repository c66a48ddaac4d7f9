"""The emulated ``tensorflow.python.ipu``: what a program gets for it when the target is the emulator.

Importing the package imports no TensorFlow: it is already needed while TensorFlow itself is imported. A module is
imported when it is first asked for; those of ``ops`` and ``optimizers`` are also found under the package itself, and
both names give the same object.
"""

from ipu_conformance.emulator.tensorflow.surface import inner_modules as _inner_modules
from ipu_conformance.emulator.tensorflow.surface import lazy as _lazy

__getattr__, __dir__ = _lazy(
    __name__,
    modules={
        **_inner_modules(),
        "layers": "keras.layers",
        "losses": "keras.losses",
        "popfloat_cast_to_gfloat": "ops.experimental.popfloat_cast_to_gfloat",
    },
    members={"outlined_function": "ops.functional_ops"},
)
