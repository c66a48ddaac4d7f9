"""Losses and metrics of classifiers."""
