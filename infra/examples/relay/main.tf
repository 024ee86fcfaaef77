# A table whose entities emit events, and the relay that publishes them to a topic, or to a queue of yours. The table's stream wakes it; every minute it
# sweeps for what a lost record of the stream has left behind.
#
#   python3.13 infra/package.py infra/examples/relay/relay.py
#   terraform -chdir=infra/examples/relay init
#   terraform -chdir=infra/examples/relay apply

module "relay" {
  source = "../../terraform"

  name             = var.name
  package          = var.package
  handler          = "relay.handler"
  function_timeout = 60
  environment      = merge({ ORDERS_TABLE = aws_dynamodb_table.orders.name }, local.target)
  table_arn        = aws_dynamodb_table.orders.arn
  table_actions    = ["dynamodb:GetItem", "dynamodb:UpdateItem"]
  policy           = data.aws_iam_policy_document.relay.json

  event_source         = "stream"
  stream_arn           = aws_dynamodb_table.orders.stream_arn
  batch_size           = 100
  batch_window_seconds = var.batch_window_seconds
  # What was emitted before the function was there is found by the sweep.
  stream_starting_position = "LATEST"
  # A record is only a doorbell: if the function fails as a whole, by a timeout or for want of memory, it need not be tried for
  # long, because the sweep finds what it reported. What is given up is described among the dead letters; nothing is to be redriven.
  stream_bisect              = true
  stream_maximum_retries     = 2
  stream_maximum_age_seconds = 3600
  alarm_topic_arns           = var.alarm_topic_arns
  # It logs no batches, and is invoked by the schedule as well.
  alarms_left_out = ["unsettled", "unread"]
}

locals {
  queue = var.target == "topic" ? [] : split(":", var.target_queue_arn) # arn:aws:sqs:REGION:ACCOUNT:NAME
  target = (var.target == "topic"
    ? tomap({ TOPIC_ARN = one(aws_sns_topic.events[*].arn) })
    : tomap({ QUEUE_URL = "https://sqs.${local.queue[3]}.${data.aws_partition.current.dns_suffix}/${local.queue[4]}/${local.queue[5]}" })
  )
}

data "aws_partition" "current" {}

resource "aws_dynamodb_table" "orders" {
  name                        = var.name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "orderId"
  deletion_protection_enabled = var.deletion_protection
  # With the new image the function passes over what has nothing pending, such as each clear of its own, without a read.
  stream_enabled   = true
  stream_view_type = "NEW_IMAGE"

  attribute {
    name = "orderId"
    type = "S"
  }

  attribute {
    name = "ow_shard"
    type = "N"
  }

  attribute {
    name = "ow_due"
    type = "S"
  }

  # An item is in it only while something is pending.
  global_secondary_index {
    name            = "pending"
    hash_key        = "ow_shard"
    range_key       = "ow_due"
    projection_type = "KEYS_ONLY"
  }

  point_in_time_recovery {
    enabled = true
  }
}

# A FIFO topic keeps the order of each entity's events.
resource "aws_sns_topic" "events" {
  count = var.target == "topic" ? 1 : 0

  name                        = var.fifo ? "${var.name}-events.fifo" : "${var.name}-events"
  fifo_topic                  = var.fifo
  content_based_deduplication = var.fifo ? false : null
  kms_master_key_id           = "alias/aws/sns" # AWS's own key, whose policy lets everybody use it who may use the topic
}

data "aws_iam_policy_document" "relay" {
  statement {
    actions   = ["dynamodb:Scan"]
    resources = ["${aws_dynamodb_table.orders.arn}/index/pending"]
  }

  statement {
    actions   = [var.target == "topic" ? "sns:Publish" : "sqs:SendMessage"]
    resources = [var.target == "topic" ? one(aws_sns_topic.events[*].arn) : var.target_queue_arn]
  }
}

# ---------------------------------------------------------------- the sweep

resource "aws_cloudwatch_event_rule" "sweep" {
  name                = "${var.name}-sweep"
  description         = "Lets the relay sweep for events that the stream hasn't reported."
  schedule_expression = var.sweep_minutes == 1 ? "rate(1 minute)" : "rate(${var.sweep_minutes} minutes)"
}

resource "aws_cloudwatch_event_target" "sweep" {
  rule = aws_cloudwatch_event_rule.sweep.name
  arn  = module.relay.alias_arn
}

resource "aws_lambda_permission" "sweep" {
  action        = "lambda:InvokeFunction"
  function_name = module.relay.function_name
  qualifier     = module.relay.alias_name
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.sweep.arn
}

# A sweep that fails is not tried again: the next one comes soon.
resource "aws_lambda_function_event_invoke_config" "sweep" {
  function_name                = module.relay.function_name
  qualifier                    = module.relay.alias_name
  maximum_event_age_in_seconds = 60
  maximum_retry_attempts       = 0
}

# It rings as well when no sweep has reported anything, whatever the doorbells do: what they do not report waits then. An event
# that was refused is met again after five minutes and the time until the next sweep, so that each ten minutes show it.
resource "aws_cloudwatch_metric_alarm" "oldest_event" {
  alarm_name          = "${var.name}-oldest-event"
  alarm_description   = "Events wait too long, or the relay doesn't run. The broker might refuse an event or fail, or the relay is too slow. See `onewrite relay --stuck`."
  namespace           = "onewrite"
  metric_name         = "OldestEvent"
  dimensions          = { FunctionName = module.relay.function_name }
  statistic           = "Maximum"
  period              = 600
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.oldest_event_seconds
  treat_missing_data  = "breaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
}

resource "aws_cloudwatch_metric_alarm" "broken" {
  alarm_name          = "${var.name}-broken"
  alarm_description   = "Another writer has damaged an item's outbox. Its events wait until you repair it. `onewrite relay --stuck` names the item."
  namespace           = "onewrite"
  metric_name         = "EntitiesBroken"
  dimensions          = { FunctionName = module.relay.function_name }
  statistic           = "Maximum"
  period              = 600
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
}

output "table_name" {
  description = "The table."
  value       = aws_dynamodb_table.orders.name
}

output "table_arn" {
  description = "The ARN of the table."
  value       = aws_dynamodb_table.orders.arn
}

output "topic_arn" {
  description = "The topic to which the relay publishes, or null. Create the subscriptions yourself."
  value       = one(aws_sns_topic.events[*].arn)
}

output "relay" {
  description = "The function, its role, and its dead-letter queue."
  value       = module.relay
}
