"""A folder that ``ipu-conformance emulate`` puts first on PYTHONPATH; only its sitecustomize is ever imported."""
