# A queue, or a stream of yours, that feeds a function, which may write to your table. The queue, its dead letters, the log and
# the role are made here, and alarms that watch them. Without a function it is a queue for a worker. ../examples shows stacks that use it.

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  queue  = var.event_source == "queue"
  suffix = var.fifo ? ".fifo" : ""

  # Made by hand where the resource itself would close a circle.
  here         = "${data.aws_region.current.id}:${data.aws_caller_identity.current.account_id}"
  queue_arn    = "arn:${data.aws_partition.current.partition}:sqs:${local.here}:${var.name}-events${local.suffix}"
  letters_arn  = "arn:${data.aws_partition.current.partition}:sqs:${local.here}:${var.name}-dead-letters${local.suffix}"
  queue_arns   = merge(local.queue ? { events = local.queue_arn } : {}, { dead_letters = local.letters_arn })
  function_arn = "arn:${data.aws_partition.current.partition}:lambda:${local.here}:function:${var.name}"
}

resource "aws_cloudwatch_log_group" "this" {
  count = var.function ? 1 : 0

  name              = "/aws/lambda/${var.name}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
}

resource "aws_lambda_function" "this" {
  count = var.function ? 1 : 0

  function_name                  = var.name
  role                           = aws_iam_role.function[0].arn
  package_type                   = var.package == null ? "Image" : "Zip"
  filename                       = var.package
  source_code_hash               = var.package == null ? null : filebase64sha256(var.package)
  image_uri                      = var.image_uri
  handler                        = var.package == null ? null : var.handler
  runtime                        = var.package == null ? null : var.runtime
  architectures                  = [var.architecture]
  memory_size                    = var.memory_size
  timeout                        = var.function_timeout
  layers                         = var.layers
  reserved_concurrent_executions = var.reserved_concurrency == null ? -1 : var.reserved_concurrency
  kms_key_arn                    = var.kms_key_arn
  publish                        = true # a version for each change, which the alias names

  environment {
    variables = merge(var.environment, var.secret_arns)
  }

  dynamic "image_config" {
    for_each = var.package == null && var.handler != null ? [var.handler] : []

    content {
      command = [image_config.value]
    }
  }

  dynamic "tracing_config" {
    for_each = var.tracing ? ["Active"] : []

    content {
      mode = tracing_config.value
    }
  }

  dynamic "vpc_config" {
    for_each = length(var.subnet_ids) > 0 ? [var.subnet_ids] : []

    content {
      subnet_ids         = vpc_config.value
      security_group_ids = var.security_group_ids
    }
  }

  logging_config {
    log_group  = aws_cloudwatch_log_group.this[0].name
    log_format = "JSON" # each batch's line carries its numbers as fields
  }

  # A first batch would otherwise come before the function may write.
  depends_on = [aws_iam_role_policy.function]
}

# What takes messages. To go back to an earlier version, point it there: nothing else of the stack changes.
resource "aws_lambda_alias" "live" {
  count = var.function ? 1 : 0

  name             = "live"
  description      = "The version that processes messages."
  function_name    = aws_lambda_function.this[0].function_name
  function_version = aws_lambda_function.this[0].version
}

resource "aws_lambda_event_source_mapping" "this" {
  count = var.function ? 1 : 0

  event_source_arn                   = local.queue ? aws_sqs_queue.events[0].arn : var.stream_arn
  function_name                      = aws_lambda_alias.live[0].arn
  enabled                            = var.enabled
  batch_size                         = var.batch_size
  maximum_batching_window_in_seconds = var.batch_window_seconds
  # Without it Lambda ignores what the handler returns: it would delete the messages that failed, and pass over the records.
  function_response_types = ["ReportBatchItemFailures"]

  starting_position              = local.queue ? null : var.stream_starting_position
  maximum_record_age_in_seconds  = local.queue ? null : var.stream_maximum_age_seconds
  maximum_retry_attempts         = local.queue ? null : var.stream_maximum_retries
  bisect_batch_on_function_error = local.queue ? null : var.stream_bisect

  dynamic "scaling_config" {
    for_each = local.queue ? [var.maximum_concurrency] : []

    content {
      maximum_concurrency = scaling_config.value
    }
  }

  dynamic "destination_config" {
    for_each = local.queue ? [] : [aws_sqs_queue.dead_letters.arn]

    content {
      on_failure {
        destination_arn = destination_config.value
      }
    }
  }
}
