"""Many runs: which train together, in which processes, and whether there is room for them."""
