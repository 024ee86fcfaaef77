"""What the stores of both engines share, above the guarded write: the checks of their arguments, and `explain`."""
