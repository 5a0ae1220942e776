"""Reports: each a pure function of a finished run (or a plan) that returns text."""
