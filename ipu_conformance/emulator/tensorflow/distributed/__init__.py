"""Training in several processes of the host: one process of the emulator has all replicas."""
