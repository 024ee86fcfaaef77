"""The verbs that look at what entities hold, and repair it: inspect, forget, set-mark, clear and strip."""
