"""Reads the facts, by requests that only read. What is refused or fails is `Unread`, and the rest goes on."""
