"""What a worker decides about the messages at hand: pure, without a clock, a thread or a client."""
