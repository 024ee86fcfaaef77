"""Taps between a handler and its store: every request passes them, and may be held up, failed or kept without its answer."""
