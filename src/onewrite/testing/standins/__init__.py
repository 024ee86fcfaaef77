"""Tables and collections in memory: moto and mongomock, which are made to answer as DynamoDB and MongoDB do.

Read stores.py first. For moto, moto_patches.py replaces methods, and dynamodb_rules.py has the rules. For mongomock, collection.py has
the classes and says what they can answer, and mongodb_rules.py has the rules.
"""
