"""Cases of custom ops."""
