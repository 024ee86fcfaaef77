"""Run a handler through every schedule of deliveries and faults that the bounds allow, and judge the end of each schedule.

Read the modules in this order:

- `explore`: the functions that a test calls. `exploration`: their result.
- `schedule`: the possible steps of a schedule, and replay codes.
- `deliverables`: messages and events, and the records that a response settles. `calls`: calls of the handler that pause at every
  request. `recall`: the handler's recorded behavior. `proof`: checks of the recorded behavior.
- `subject`: the handler, its messages, and its stores. `modes`: how its trials run. `trial`: one run of a schedule, with or without
  running the handler. `stale_reads`: the responses of reads that miss a write.
- `undisturbed`: each message once, without faults. `sharing` and `surroundings`: the same in other processes, and at another time.
- `search`: the choice of the schedules to run, and the shortening of a schedule that ends wrongly.
- `judge`: decides whether a schedule ended correctly. `difference`: describes differences between two runs. `remarks`: other remarks.
"""
