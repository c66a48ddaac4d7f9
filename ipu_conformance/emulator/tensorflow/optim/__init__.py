"""Arithmetic that the vendor's optimizers share."""
