"""Taps on clients of AWS: what each call of a client is as a request."""
