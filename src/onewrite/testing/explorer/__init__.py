"""Runs a handler through every schedule of deliveries and faults that the bounds allow, and judges how each schedule ends.

Read the modules in this order:

- `explore`: what a test calls. `arguments`: what it is called with. `exploration`: what it returns.
- `schedule`: which steps a schedule may take. `replay_code`: a schedule as a short text.
- `deliverables`: what is delivered, and which records of an event an answer settles. `invocation`: how the handler is called.
- `calls`: calls of the handler that stop at every request. `senders`: hears what they send by clients of their own. `trial`: runs
  one schedule with them.
- `judge`: decides whether a schedule ended rightly. `difference`: how two runs of one schedule differ.
  `initialisation`: what only the first of them does.
- `plans`: which schedules are run. `search`: every schedule, except for those that can show nothing new. `shrink`: looks
  for the shortest schedule that ends wrongly.
"""
