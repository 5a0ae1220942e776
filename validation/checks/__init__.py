"""The rules: one module for each check; registry.py has all of them."""
