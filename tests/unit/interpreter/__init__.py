"""Tests of the interpreter of dumps."""
