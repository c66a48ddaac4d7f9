"""Writing the elements of a data set to files that an executable reads, which only the vendor's runtime can."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

_WHY = "the files have the format of the vendor's runtime"

_FUNCTIONS = {
    "dataset_extractor": "dataset, num_elements, filename, feed_name, print_stats=True",
    "export_variables": "variables, names, filename, metadata=None, print_stats=True",
    "get_variable_handles": "variables",
    "import_variables": "variables, filenames, is_input=True, strict=True, print_stats=True",
}
globals().update({name: _unavailable_function(name, _WHY, parameters) for name, parameters in _FUNCTIONS.items()})

__all__ = [*_FUNCTIONS]
