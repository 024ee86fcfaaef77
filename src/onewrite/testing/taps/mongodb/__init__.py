"""Taps on collections, databases, clients and sessions of MongoDB: what each call is as a request."""
