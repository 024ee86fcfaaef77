locals {
  stream_service = local.queue ? null : split(":", var.stream_arn)[2]

  # All that the function may do, and where. What is not given is left out.
  statements = {
    table = {
      given     = var.table_arn != null
      actions   = var.table_actions
      resources = [var.table_arn]
    }
    indexes = {
      given     = length(var.index_actions) > 0
      actions   = var.index_actions
      resources = var.table_arn == null ? [] : [var.table_arn, "${var.table_arn}/index/*"]
    }
    queue = { # what Lambda's poller needs, in the function's name
      given     = local.queue
      actions   = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]
      resources = [local.queue_arn]
    }
    kinesis = { # the same
      given     = local.stream_service == "kinesis"
      actions   = ["kinesis:DescribeStream", "kinesis:DescribeStreamSummary", "kinesis:GetRecords", "kinesis:GetShardIterator", "kinesis:ListShards"]
      resources = [var.stream_arn]
    }
    dynamodb = { # the same
      given     = local.stream_service == "dynamodb"
      actions   = ["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"]
      resources = [var.stream_arn]
    }
    streams = { # the same; it cannot be allowed for one stream
      given     = local.stream_service == "dynamodb"
      actions   = ["dynamodb:ListStreams"]
      resources = ["*"]
    }
    dead_letters = { # a queue moves its dead letters by itself; those of a stream are sent
      given     = !local.queue
      actions   = ["sqs:SendMessage"]
      resources = [aws_sqs_queue.dead_letters.arn]
    }
    log = {
      given     = true
      actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
      resources = [for arn in aws_cloudwatch_log_group.this[*].arn : "${arn}:*"]
    }
    secrets = {
      given     = length(var.secret_arns) > 0
      actions   = ["secretsmanager:GetSecretValue"]
      resources = values(var.secret_arns)
    }
    key = {
      given     = var.kms_key_arn != null
      actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
      resources = [var.kms_key_arn]
    }
    stream_key = {
      given     = var.stream_kms_key_arn != null
      actions   = ["kms:Decrypt"]
      resources = [var.stream_kms_key_arn]
    }
    traces = { # they cannot be allowed for one function
      given     = var.tracing
      actions   = ["xray:PutTraceSegments", "xray:PutTelemetryRecords"]
      resources = ["*"]
    }
    network = { # the interfaces are not there yet
      given     = length(var.subnet_ids) > 0
      actions   = local.network_actions
      resources = ["*"]
    }
  }

  # What Lambda needs to put the function into the subnets.
  network_actions = [
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
  ]
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }

    # Or Lambda would take on the role for a function of another account.
    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.current.account_id]
    }
  }
}

data "aws_iam_policy_document" "function" {
  source_policy_documents = var.policy == null ? [] : [var.policy]

  dynamic "statement" {
    for_each = { for name, statement in local.statements : name => statement if statement.given }

    content {
      actions   = statement.value.actions
      resources = statement.value.resources
    }
  }

  # Lambda makes the interfaces before it starts the function. The function's own code has no business with them.
  dynamic "statement" {
    for_each = length(var.subnet_ids) > 0 ? [local.network_actions] : []

    content {
      effect    = "Deny"
      actions   = statement.value
      resources = ["*"]

      condition {
        test     = "ArnEquals"
        variable = "lambda:SourceFunctionArn"
        values   = [local.function_arn]
      }
    }
  }
}

resource "aws_iam_role" "function" {
  count = var.function ? 1 : 0

  name_prefix          = "${substr(var.name, 0, 37)}-"
  assume_role_policy   = data.aws_iam_policy_document.assume.json
  permissions_boundary = var.permissions_boundary
}

resource "aws_iam_role_policy" "function" {
  count = var.function ? 1 : 0

  name   = "guarded-writes"
  role   = aws_iam_role.function[0].id
  policy = data.aws_iam_policy_document.function.json
}
