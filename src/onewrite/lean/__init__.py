"""The first attempt of a DynamoDB request without boto3. If the response isn't clear, the boto3 client sends the request again."""
