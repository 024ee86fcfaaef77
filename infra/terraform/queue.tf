locals {
  senders = {
    sns    = { service = "sns", arns = var.sns_topic_arns }
    events = { service = "events", arns = var.event_rule_arns }
    s3     = { service = "s3", arns = var.s3_bucket_arns }
  }
}

resource "aws_sqs_queue" "events" {
  count = local.queue ? 1 : 0

  name                        = "${var.name}-events${local.suffix}"
  fifo_queue                  = var.fifo
  content_based_deduplication = var.content_based_deduplication
  # High throughput, which costs no more. A message group is a source, and no two sources' messages are copies of each other.
  deduplication_scope   = var.fifo ? "messageGroup" : null
  fifo_throughput_limit = var.fifo ? "perMessageGroupId" : null
  # Six times the function's timeout, and the window, is what Lambda asks for: a batch that was throttled is tried again while
  # its messages are still hidden.
  visibility_timeout_seconds = 6 * var.function_timeout + var.batch_window_seconds
  message_retention_seconds  = var.message_retention_seconds
  sqs_managed_sse_enabled    = var.kms_key_arn == null ? true : null
  kms_master_key_id          = var.kms_key_arn

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters.arn
    maxReceiveCount     = var.max_receive_count
  })
}

resource "aws_sqs_queue" "dead_letters" {
  name                      = "${var.name}-dead-letters${local.suffix}"
  fifo_queue                = var.fifo # must be what its source is
  message_retention_seconds = var.dead_letter_retention_seconds
  sqs_managed_sse_enabled   = var.kms_key_arn == null ? true : null
  kms_master_key_id         = var.kms_key_arn

  # No other queue may use it: the alarm and the redrive are for this one's messages. A stream's letters come by another way.
  redrive_allow_policy = (local.queue
    ? jsonencode({ redrivePermission = "byQueue", sourceQueueArns = [local.queue_arn] })
    : jsonencode({ redrivePermission = "denyAll" })
  )
}

data "aws_iam_policy_document" "queue" {
  for_each = local.queue_arns

  statement {
    sid       = "tls"
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = [each.value]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }

  dynamic "statement" {
    for_each = { for name, sender in local.senders : name => sender if length(sender.arns) > 0 && each.key == "events" }

    content {
      sid       = statement.key
      actions   = ["sqs:SendMessage"]
      resources = [local.queue_arn]

      principals {
        type        = "Service"
        identifiers = ["${statement.value.service}.amazonaws.com"]
      }

      # Or the service would send for anybody who asks it to.
      condition {
        test     = "ArnEquals"
        variable = "aws:SourceArn"
        values   = statement.value.arns
      }

      # A bucket's ARN names no account. Once deleted, its name is anybody's.
      dynamic "condition" {
        for_each = statement.key == "s3" ? [data.aws_caller_identity.current.account_id] : []

        content {
          test     = "StringEquals"
          variable = "aws:SourceAccount"
          values   = [condition.value]
        }
      }
    }
  }
}

resource "aws_sqs_queue_policy" "this" {
  for_each = local.queue_arns

  queue_url = each.key == "events" ? aws_sqs_queue.events[0].url : aws_sqs_queue.dead_letters.url
  policy    = data.aws_iam_policy_document.queue[each.key].json
}
