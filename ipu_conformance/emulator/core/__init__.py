"""The framework-neutral virtual IPU: device, topology, plan, streams, engine, numerics, memory, cost and trace."""
