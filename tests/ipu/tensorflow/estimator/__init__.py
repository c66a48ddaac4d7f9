"""Cases of estimators."""
