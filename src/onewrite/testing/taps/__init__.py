"""Taps between a handler and its store. Every request goes through the tap, which can delay it, fail it, or lose its response."""
