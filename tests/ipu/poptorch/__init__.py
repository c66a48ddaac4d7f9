"""Conformance cases of PopTorch, on the vendor's API only."""
