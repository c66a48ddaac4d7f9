"""The configuration of the IPU system, the environment, and the devices that follow from them."""
