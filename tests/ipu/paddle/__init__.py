"""The cases of Paddle, on its public API."""
