"""A handler while it is explored: what is delivered to it, its calls, which stop at every request, and what it has done before."""
