"""Consumers to copy, for libraries of brokers."""
