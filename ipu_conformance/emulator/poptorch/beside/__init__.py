"""Packages of the vendor that programs import beside poptorch, as far as a program of PopTorch uses them."""
