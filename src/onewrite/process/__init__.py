"""This Python process: its signals and forks, and the packages that it lacks."""
