"""Real engines, started on free ports of this machine and removed without trace."""
