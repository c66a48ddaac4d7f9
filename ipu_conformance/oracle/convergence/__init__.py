"""Convergence: baselines, the band around them, and what they can detect."""
