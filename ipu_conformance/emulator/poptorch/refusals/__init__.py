"""What PopTorch refuses, by chapter: a row for each of the vendor's rules, with the sentence that the user reads."""

ERROR = "ipu_conformance.emulator.poptorch.options.diagnostics.Error"
"""The vendor's own error; by name, because the options, where it is defined, refuse things too."""
