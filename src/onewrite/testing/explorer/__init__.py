"""Runs a handler through every schedule of deliveries and faults that the bounds allow, and judges how each schedule ends.

Read the modules in this order:

- `explore`: what a test calls. `exploration`: what it returns.
- `schedule`: which steps a schedule may take, and a schedule as a short text.
- `deliverables`: what is delivered, and which records of an event an answer settles. `calls`: calls of the handler that stop at every
  request. `recall`: what the handler does after which answers, and `proof`: that it does.
- `subject`: the handler, its messages and its stores. `trial`: one run of a schedule, with the handler or without.
- `search`: which schedules are run, and how one that ends wrongly is shortened.
- `judge`: decides whether a schedule ended rightly. `difference`: how two runs of one schedule differ. `remarks`: what else to say.
"""
