"""Real engines for tests: each is a program that is started on a free port, and of which nothing is left afterwards.

Read engines.py first. process.py finds, starts and ends the programs.
"""
