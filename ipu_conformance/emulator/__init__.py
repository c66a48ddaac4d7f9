"""The virtual IPU: a framework-neutral core (device, topology, plan, streams, trace, …) and the vendors' front ends."""
