"""Cases of shards, stages and memory."""
