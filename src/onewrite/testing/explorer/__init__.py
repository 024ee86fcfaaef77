"""Runs a handler through every schedule of deliveries and faults that the bounds allow, and judges how each schedule ends.

Read the modules in this order:

- `explore`: what a test calls. `arguments`: what it is called with. `exploration`: what it returns.
- `schedule`: which steps a schedule may take. `replay_code`: a schedule as a short text.
- `handler/deliverables`: what is delivered, and which records of an event an answer settles. `handler/invocation`: how the handler
  is called. `handler/calls`: calls that stop at every request. `handler/senders`: hears what they send by clients of their own.
  `handler/recall`: what the handler does after which answers.
- `trials/subject`: the handler and its stores. `trials/trial`: one run of a schedule. `trials/recalled_trial`: one without the handler.
- `judging/judge`: decides whether a schedule ended rightly. `judging/difference`: how two runs of one schedule differ.
- `searching/plans`: which schedules are run. `searching/every_place`: all that the bounds allow, of a handler that is recalled.
  `searching/every_schedule`: all that can show something new, of one that is run. `searching/shrink`: looks for the shortest
  schedule that ends wrongly.
"""
