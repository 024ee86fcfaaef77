locals {
  # The one that goes with the source.
  oldest = local.queue ? {
    namespace  = "AWS/SQS"
    metric     = "ApproximateAgeOfOldestMessage"
    dimensions = { QueueName = aws_sqs_queue.events[0].name }
    above      = var.oldest_message_seconds
    } : {
    namespace  = "AWS/Lambda"
    metric     = "IteratorAge" # in milliseconds
    dimensions = { FunctionName = aws_lambda_function.this.function_name }
    above      = 1000 * var.oldest_message_seconds
  }

  alarms = {
    oldest-message = merge(local.oldest, {
      description = "Messages wait too long. The function fails, defers them, or is too slow for what comes in."
      statistic   = "Maximum"
      period      = 300
    })
    dead-letters = {
      description = "Messages were given up. Find out why in the function's log, mend it, and redrive them."
      namespace   = "AWS/SQS"
      metric      = "ApproximateNumberOfMessagesVisible"
      dimensions  = { QueueName = aws_sqs_queue.dead_letters.name }
      statistic   = "Maximum"
      period      = 60
      above       = 0
    }
    errors = {
      description = "Invocations failed as a whole - a timeout, no memory, an import. Messages reported as failed do not count."
      namespace   = "AWS/Lambda"
      metric      = "Errors"
      dimensions  = { FunctionName = aws_lambda_function.this.function_name }
      statistic   = "Sum"
      period      = 300
      above       = 0
    }
    throttles = {
      description = "The account had no room for the function. Each throttled batch has used up one of its deliveries."
      namespace   = "AWS/Lambda"
      metric      = "Throttles"
      dimensions  = { FunctionName = aws_lambda_function.this.function_name }
      statistic   = "Sum"
      period      = 300
      above       = 0
    }
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
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.above
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
}
