"""The first try of a request without boto3. Whatever is not a plain yes or a failed condition is left to the boto3 client."""
