"""A store whose answers are remembered, so an exploration asks the real store each thing only once.

Read the modules in this order:

- `machine`: answers requests from memory where it can, and from the real store where it must; what DynamoDB's tokens and MongoDB's
  transactions do to an answer.
- `databases`: which database each store reaches, and which store performs what clients of the handler's own send.
- `contents`: reads what a table or collection holds, and puts it back; a form of values by which equal ones are found again.
"""
