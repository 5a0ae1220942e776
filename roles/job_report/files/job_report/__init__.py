"""What a job used of what it was given, for the user who ran it."""
