"""`onewrite demo --web`: the three handlers of the demo at work on a page, for as long as somebody looks."""
