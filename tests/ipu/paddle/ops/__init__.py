"""Ops of Paddle's own, and its other calls of ops that all frameworks have."""
