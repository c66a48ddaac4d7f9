"""Tests of the names that Paddle programs call: strategies, custom ops, predictors."""
