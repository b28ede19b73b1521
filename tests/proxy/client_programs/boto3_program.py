"""A request of boto3 with a bearer token."""

import boto3

client = boto3.client("bedrock-runtime", region_name="us-east-1")
client.converse(
    modelId="us.anthropic.claude-sonnet-4-5-20250929-v1:0", messages=[{"role": "user", "content": [{"text": "Hello."}]}]
)
