"""Cases of paddle.inference."""
