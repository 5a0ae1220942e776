"""Encrypted archives of what a cluster cannot make again, and the way back."""
