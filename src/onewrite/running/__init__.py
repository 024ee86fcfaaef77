"""What every room needs that runs a user's function: the event loop of a thread, and the line and reason of a failure."""
