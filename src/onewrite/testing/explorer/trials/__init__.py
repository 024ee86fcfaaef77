"""One run of a schedule: the deliveries take their steps, with the handler or from memory."""
