# A Kinesis stream whose function adds up what meters have counted, in a table.
#
#   python3.13 infra/package.py infra/examples/stream/meters.py
#   terraform -chdir=infra/examples/stream init
#   terraform -chdir=infra/examples/stream apply

module "meters" {
  source = "../../terraform"

  name          = var.name
  package       = var.package
  handler       = "meters.handler"
  environment   = { METERS_TABLE = aws_dynamodb_table.meters.name }
  table_arn     = aws_dynamodb_table.meters.arn
  table_actions = ["dynamodb:UpdateItem"]
  event_source  = "stream"
  stream_arn    = aws_kinesis_stream.readings.arn
  batch_size    = 100
  # One record that makes the function fail as a whole, by a timeout or for want of memory, is found by halving. A record that
  # still fails after six hours is given up: its place in the stream is among the dead letters, and 18 hours are left to fetch it.
  stream_bisect              = true
  stream_maximum_age_seconds = 21600
  alarm_topic_arns           = var.alarm_topic_arns
}

resource "aws_kinesis_stream" "readings" {
  name             = "${var.name}-readings"
  retention_period = 24 # hours
  encryption_type  = "KMS"
  kms_key_id       = "alias/aws/kinesis"

  stream_mode_details {
    stream_mode = "ON_DEMAND"
  }
}

resource "aws_dynamodb_table" "meters" {
  name                        = var.name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "meterId"
  deletion_protection_enabled = var.deletion_protection

  attribute {
    name = "meterId"
    type = "S"
  }

  point_in_time_recovery {
    enabled = true
  }
}

output "table_name" {
  description = "The table."
  value       = aws_dynamodb_table.meters.name
}

output "stream_name" {
  description = "The stream for the readings. Use the meter as the partition key, so that its readings stay in order."
  value       = aws_kinesis_stream.readings.name
}

output "meters" {
  description = "The function, its role, and its dead-letter queue."
  value       = module.meters
}
