"""Records what a machine with GPUs says of itself, without saying which machine it is."""
