"""Cases of programs that TensorFlow users write themselves: feeds, loops, pipelines, optimizers."""
