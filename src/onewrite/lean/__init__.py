"""The first try of a request without boto3. Whatever is not plainly an answer is left to the client.

It knows no service: `dynamodb/lean.py` and `sqs/lean.py` say what is particular to theirs.
"""
