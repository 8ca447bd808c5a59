"""The lake as the core has it: what waits there, what was recalled, and the steps of an offload."""
