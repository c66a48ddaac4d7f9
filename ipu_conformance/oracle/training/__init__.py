"""Training runs: nets, optimizers, schedules, and what accumulation, replicas and stages mean."""
