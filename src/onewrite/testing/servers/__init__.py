"""Real engines for tests. Each runs as a program on a free port, and is removed with its data afterwards.

Read engines.py first. process.py finds, starts, and ends the programs.
"""
