"""Which schedules are run, in which order, and how a schedule that ends wrongly is made shorter."""
