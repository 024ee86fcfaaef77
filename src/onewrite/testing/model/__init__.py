"""A store that remembers responses. An exploration sends each request only once to the real store.

Read the modules in this order:

- `machine`: answers requests from memory if possible, otherwise from the real store. It also models DynamoDB's request tokens and
  MongoDB's transactions.
- `databases`: the database of each store, and the store that performs the requests of the handler's own clients.
- `contents`: reads and restores the contents of a table or collection, and has a canonical form of values.
"""
