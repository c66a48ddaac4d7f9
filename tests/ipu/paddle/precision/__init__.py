"""Cases of float16, mixed precision and floating-point exceptions."""
