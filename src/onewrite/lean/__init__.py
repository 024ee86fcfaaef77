"""The first attempt of a request without boto3. If the response isn't clear, the boto3 client sends the request again.

This package is independent of services: `dynamodb/lean.py` and `sqs/lean.py` define theirs.
"""
