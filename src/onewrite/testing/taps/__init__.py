"""A tap stands between a handler and its store. Every request passes it, and may be held up, made to fail, or lose its answer."""
