"""Runs a handler through every schedule of deliveries, crashes and lost answers that the bounds allow, and judges each."""
