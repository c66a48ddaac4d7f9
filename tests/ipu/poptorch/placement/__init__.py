"""Cases of blocks, stages, phases and IPUs."""
