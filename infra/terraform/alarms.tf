# One alarm for each way to fail. Each says what it is measured by: a metric, or two that are compared.
locals {
  dead_letters_text = (local.queue
    ? "Messages were given up. Find out why in the log, mend it, and redrive them."
    : "Records were given up. A letter only says where in the stream they were, so there is nothing to redrive: mend the function, and fetch them from there. For a relay a sweep has done their work."
  )
  throttles_text = (local.queue
    ? "The account had no room for the function. Each throttled batch has used up one of its deliveries."
    : "The account had no room for the function. The records wait in the stream."
  )

  alarms = { for name, alarm in local.every_alarm : name => alarm if !contains(var.alarms_left_out, name) }

  every_alarm = merge(local.alarms_of_queue, local.alarms_of_stream, local.alarms_of_function, {
    dead-letters = {
      description = local.dead_letters_text
      namespace   = "AWS/SQS"
      metric      = "ApproximateNumberOfMessagesVisible"
      dimensions  = { QueueName = aws_sqs_queue.dead_letters.name }
      statistic   = "Maximum"
      period      = 60
      periods     = 1
      above       = 0
    }
  })

  alarms_of_queue = { for name, alarm in {
    oldest-message = {
      description = "Messages wait too long. The consumer fails, defers them, is too slow, or doesn't run."
      namespace   = "AWS/SQS"
      metric      = "ApproximateAgeOfOldestMessage"
      dimensions  = { QueueName = one(aws_sqs_queue.events[*].name) }
      statistic   = "Maximum"
      period      = 300
      periods     = 1
      above       = var.oldest_message_seconds
    }
  } : name => alarm if local.queue }

  alarms_of_stream = { for name, alarm in {
    oldest-message = {
      description = "Records wait too long. The function fails, defers them, or is too slow."
      namespace   = "AWS/Lambda"
      metric      = "IteratorAge" # in milliseconds
      dimensions  = { FunctionName = var.name }
      statistic   = "Maximum"
      period      = 300
      periods     = 1
      above       = 1000 * var.oldest_message_seconds
    }
  } : name => alarm if !local.queue }

  alarms_of_function = { for name, alarm in {
    errors = {
      description = "Whole invocations failed, for example by a timeout, a lack of memory, or a failed import. Messages reported as failed don't count."
      namespace   = "AWS/Lambda"
      metric      = "Errors"
      dimensions  = { FunctionName = var.name }
      statistic   = "Sum"
      period      = 300
      periods     = 1
      above       = 0
    }
    throttles = {
      description = local.throttles_text
      namespace   = "AWS/Lambda"
      metric      = "Throttles"
      dimensions  = { FunctionName = var.name }
      statistic   = "Sum"
      period      = 300
      periods     = 1
      above       = 0
    }
    # A standard queue puts a message that was received three times behind the others, and its age is that of another one then.
    unsettled = {
      description = "In several periods in a row, messages failed, were deferred, or were returned because time ran out. They will be delivered again. Each batch's line in the log names them."
      namespace   = "onewrite"
      metric      = "Unsettled-${var.name}"
      dimensions  = {}
      statistic   = "Sum"
      period      = 300 * ceil((6 * var.function_timeout + 300) / 300) # what is hidden has come again by then
      periods     = 2
      above       = 0
    }
  } : name => alarm if var.function }

  stream_name = local.queue ? "" : split("/", var.stream_arn)[1] # of a table's stream the table
  written = local.stream_service == "kinesis" ? {
    namespace  = "AWS/Kinesis"
    metric     = "IncomingRecords"
    dimensions = tomap({ StreamName = local.stream_name })
    } : {
    namespace  = "AWS/DynamoDB"
    metric     = "ConsumedWriteCapacityUnits"
    dimensions = tomap({ TableName = local.stream_name })
  }
}

resource "aws_cloudwatch_metric_alarm" "this" {
  for_each = local.alarms

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = each.value.statistic
  period              = each.value.period
  evaluation_periods  = each.value.periods
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.above
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
}

# Counts the lines that say of messages which come again: `failures` names those that failed or were deferred, and `returned` counts those
# that a batch had no time for. The filters of ../service and ../sam are the same.
resource "aws_cloudwatch_log_metric_filter" "unsettled" {
  count = var.function && !contains(var.alarms_left_out, "unsettled") ? 1 : 0

  name           = "unsettled"
  log_group_name = aws_cloudwatch_log_group.this[0].name
  pattern        = "{ $.onewrite.failures[0].error = \"*\" || $.onewrite.returned > 0 }"

  metric_transformation {
    namespace = "onewrite"
    name      = "Unsettled-${var.name}"
    value     = "1"
  }
}

# The age of records is measured where they are read. A stream that nobody reads has none.
resource "aws_cloudwatch_metric_alarm" "unread" {
  count = local.queue || contains(var.alarms_left_out, "unread") ? 0 : 1

  alarm_name          = "${var.name}-unread"
  alarm_description   = "Records arrived, but the function wasn't invoked. Its event source mapping is disabled, missing, or not allowed to read. If a table refused all writes, this alarm goes off too."
  evaluation_periods  = 3
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns

  metric_query {
    id          = "unread"
    expression  = "IF(FILL(written, 0) > 0 AND FILL(invoked, 0) == 0, 1, 0)"
    label       = "unread"
    return_data = true
  }

  metric_query {
    id = "written"

    metric {
      namespace   = local.written.namespace
      metric_name = local.written.metric
      dimensions  = local.written.dimensions
      stat        = "Sum"
      period      = 300
    }
  }

  metric_query {
    id = "invoked"

    metric {
      namespace   = "AWS/Lambda"
      metric_name = "Invocations"
      dimensions  = { FunctionName = var.name }
      stat        = "Sum"
      period      = 300
    }
  }
}
