# The order-history example on AWS: a queue that feeds a table through a function, and the alarms.
# The same as ../sam/template.yaml. For a handler of your own change the table's keys, and give `package` and `handler`.

locals {
  suffix = var.fifo ? ".fifo" : ""

  # What the library calls, and the example's query.
  table_actions = ["dynamodb:UpdateItem", "dynamodb:PutItem", "dynamodb:GetItem"]
  query_actions = ["dynamodb:Query"]
  # What Lambda's poller needs, in the function's name.
  queue_actions = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]
  log_actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
}

resource "aws_dynamodb_table" "this" {
  name                        = var.name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "orderId"
  deletion_protection_enabled = var.deletion_protection

  attribute {
    name = "orderId"
    type = "S"
  }

  attribute {
    name = "consumerId"
    type = "S"
  }

  attribute {
    name = "creationDate"
    type = "S"
  }

  global_secondary_index {
    name            = "consumer-creationDate"
    hash_key        = "consumerId"
    range_key       = "creationDate"
    projection_type = "ALL"
  }

  point_in_time_recovery {
    enabled = true
  }

  # Removes an item whose `expiresAt` (epoch seconds) is past; one without it stays, and the example sets none.
  # The item's ledger goes with it: a message that is delivered again after that creates the item anew. So let an
  # entity live on for longer than any copy of its messages can come.
  ttl {
    attribute_name = "expiresAt"
    enabled        = true
  }
}

resource "aws_sqs_queue" "events" {
  name = "${var.name}-events${local.suffix}"
  # With no deduplication by content the sender names what is the same.
  fifo_queue = var.fifo
  # Six times the function's timeout is what Lambda asks for: a batch that was throttled is tried again while its messages
  # are still hidden.
  visibility_timeout_seconds = 6 * var.function_timeout
  # Shorter than that of the dead letters: on a standard queue a message's age goes with it when it moves.
  message_retention_seconds = 345600
  sqs_managed_sse_enabled   = true

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters.arn
    maxReceiveCount     = var.max_receive_count
  })
}

resource "aws_sqs_queue" "dead_letters" {
  name                      = "${var.name}-dead-letters${local.suffix}"
  fifo_queue                = var.fifo # must be what its source is
  message_retention_seconds = 1209600  # 14 days, the longest
  sqs_managed_sse_enabled   = true
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/aws/lambda/${var.name}"
  retention_in_days = var.log_retention_days
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "function" {
  statement {
    actions   = local.table_actions
    resources = [aws_dynamodb_table.this.arn]
  }

  statement {
    actions   = local.query_actions
    resources = [aws_dynamodb_table.this.arn, "${aws_dynamodb_table.this.arn}/index/*"]
  }

  statement {
    actions   = local.queue_actions
    resources = [aws_sqs_queue.events.arn]
  }

  statement {
    actions   = local.log_actions
    resources = ["${aws_cloudwatch_log_group.this.arn}:*"]
  }
}

resource "aws_iam_role" "function" {
  name_prefix        = "${substr(var.name, 0, 37)}-"
  assume_role_policy = data.aws_iam_policy_document.assume.json
}

resource "aws_iam_role_policy" "function" {
  name   = "guarded-writes"
  role   = aws_iam_role.function.id
  policy = data.aws_iam_policy_document.function.json
}

resource "aws_lambda_function" "this" {
  function_name    = var.name
  role             = aws_iam_role.function.arn
  filename         = var.package
  source_code_hash = filebase64sha256(var.package)
  handler          = var.handler
  runtime          = var.runtime
  architectures    = [var.architecture]
  memory_size      = var.memory_size
  timeout          = var.function_timeout

  environment {
    variables = merge(var.environment, { ORDERS_TABLE = aws_dynamodb_table.this.name })
  }

  logging_config {
    log_group  = aws_cloudwatch_log_group.this.name
    log_format = "JSON" # each batch's line carries its numbers as fields
  }

  # A first batch would otherwise come before the function may write.
  depends_on = [aws_iam_role_policy.function]
}

resource "aws_lambda_event_source_mapping" "events" {
  event_source_arn = aws_sqs_queue.events.arn
  function_name    = aws_lambda_function.this.function_name
  batch_size       = var.batch_size
  # Without it Lambda ignores what the handler returns, and deletes the messages that failed.
  function_response_types = ["ReportBatchItemFailures"]

  scaling_config {
    maximum_concurrency = var.maximum_concurrency
  }
}
