"""Cases of single ops, named like Paddle's own."""
