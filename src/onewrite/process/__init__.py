"""The Python process, with the packages that it lacks, its signals and event loops, and the lines at which its code fails or hangs."""
