# A worker or a relay as a service of containers on Fargate, with its log, its roles and its alarms. The image is that of
# ../Dockerfile with your modules in it. ../examples/application uses it.

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  is_worker = var.worker != null
  queue     = local.is_worker ? split(":", var.queue_arn) : [] # arn:aws:sqs:REGION:ACCOUNT:NAME
  queue_url = local.is_worker ? "https://sqs.${local.queue[3]}.${data.aws_partition.current.dns_suffix}/${local.queue[4]}/${local.queue[5]}" : null
  command = concat(
    (local.is_worker
      ? ["worker", var.worker, "--queue-url", local.queue_url, "--health-port", tostring(var.health_port)]
      : ["relay", var.relay, "--metrics", "emf"]
    ),
    ["--drain-seconds", tostring(var.drain_seconds), "--log-level", var.log_level, "--log-format", var.log_format],
    var.options,
  )
  # The repository, if the image is in ECR: ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG. Other registries ask for no right of AWS's.
  repository = try(regex("^([0-9]{12})\\.dkr\\.ecr\\.([^.]+)\\.amazonaws\\.com(?:\\.cn)?/([^:@]+)[:@]", var.image), null)
  # The metrics' dimension is that of a function's.
  environment = merge(var.environment, var.secret_arns, local.is_worker ? {} : { AWS_LAMBDA_FUNCTION_NAME = var.name })
  alarms = local.is_worker ? {} : {
    oldest-event = {
      description = "Events wait too long, or the relay doesn't run. The broker might refuse an event or fail, or the relay is too slow. See `onewrite relay --stuck`."
      metric      = "OldestEvent"
      above       = var.oldest_event_seconds
      missing     = "breaching"
    }
    broken = {
      description = "Another writer has damaged an entity's outbox. Its events wait until you repair it. `onewrite relay --stuck` names the entity."
      metric      = "EntitiesBroken"
      above       = 0
      missing     = "notBreaching"
    }
  }
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/ecs/${var.name}"
  retention_in_days = var.log_retention_days
}

resource "aws_ecs_task_definition" "this" {
  family                   = var.name
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = var.cpu
  memory                   = var.memory
  execution_role_arn       = aws_iam_role.start.arn
  task_role_arn            = aws_iam_role.task.arn

  runtime_platform {
    operating_system_family = "LINUX"
    cpu_architecture        = upper(var.architecture)
  }

  container_definitions = jsonencode([merge({
    name                   = var.name
    image                  = var.image
    essential              = true
    entryPoint             = ["onewrite"]
    command                = local.command
    environment            = [for name, value in local.environment : { name = name, value = value }]
    readonlyRootFilesystem = true
    stopTimeout            = var.drain_seconds + 5
    linuxParameters        = { initProcessEnabled = true } # which takes away what a handler's processes leave behind
    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = aws_cloudwatch_log_group.this.name
        awslogs-region        = data.aws_region.current.id
        awslogs-stream-prefix = var.name
      }
    }
    }, local.is_worker ? {
    healthCheck = {
      command     = ["CMD", "python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:${var.health_port}/health', timeout=4)"]
      interval    = 30
      timeout     = 10
      retries     = 3
      startPeriod = 60
    }
  } : {})])
}

resource "aws_ecs_service" "this" {
  name            = var.name
  cluster         = var.cluster_arn
  task_definition = aws_ecs_task_definition.this.arn
  desired_count   = var.tasks
  launch_type     = "FARGATE"

  network_configuration {
    subnets         = var.subnet_ids
    security_groups = var.security_group_ids
  }

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  # A first message would otherwise come before the service may write.
  depends_on = [aws_iam_role_policy.task, aws_iam_role_policy.start]
}

# ---------------------------------------------------------------- rights

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }

    # Or ECS would take on the roles for a task of another account.
    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.current.account_id]
    }
  }
}

# What ECS needs to start a container: its image, and a place for its log.
resource "aws_iam_role" "start" {
  name_prefix        = "${substr(var.name, 0, 31)}-start-"
  assume_role_policy = data.aws_iam_policy_document.assume.json
}

data "aws_iam_policy_document" "start" {
  dynamic "statement" {
    for_each = local.repository == null ? [] : [local.repository]

    content {
      actions   = ["ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage"]
      resources = ["arn:${data.aws_partition.current.partition}:ecr:${statement.value[1]}:${statement.value[0]}:repository/${statement.value[2]}"]
    }
  }

  dynamic "statement" {
    for_each = local.repository == null ? [] : ["*"] # it cannot be allowed for one repository

    content {
      actions   = ["ecr:GetAuthorizationToken"]
      resources = [statement.value]
    }
  }

  statement {
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.this.arn}:*"]
  }
}

resource "aws_iam_role_policy" "start" {
  name   = "start"
  role   = aws_iam_role.start.id
  policy = data.aws_iam_policy_document.start.json
}

# What the code in the container may do.
resource "aws_iam_role" "task" {
  name_prefix        = "${substr(var.name, 0, 32)}-task-"
  assume_role_policy = data.aws_iam_policy_document.assume.json
}

data "aws_iam_policy_document" "task" {
  source_policy_documents = var.policy == null ? [] : [var.policy]

  dynamic "statement" {
    for_each = local.is_worker ? [var.queue_arn] : []

    content {
      actions   = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes"]
      resources = [statement.value]
    }
  }

  dynamic "statement" {
    for_each = length(var.secret_arns) > 0 ? [values(var.secret_arns)] : []

    content {
      actions   = ["secretsmanager:GetSecretValue"]
      resources = statement.value
    }
  }
}

resource "aws_iam_role_policy" "task" {
  name   = "guarded-writes"
  role   = aws_iam_role.task.id
  policy = data.aws_iam_policy_document.task.json
}

# ---------------------------------------------------------------- alarms

# ECS measures the processor of a service that has a container, whatever the container does.
resource "aws_cloudwatch_metric_alarm" "stopped" {
  count = var.tasks > 0 ? 1 : 0

  alarm_name          = "${var.name}-stopped"
  alarm_description   = "No container runs. It can't start, or it ends at once. The service's events and the log show why."
  namespace           = "AWS/ECS"
  metric_name         = "CPUUtilization"
  dimensions          = { ClusterName = split("/", var.cluster_arn)[1], ServiceName = aws_ecs_service.this.name }
  statistic           = "SampleCount"
  period              = 300
  evaluation_periods  = 2
  comparison_operator = "LessThanThreshold"
  threshold           = 1
  treat_missing_data  = "breaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
}

resource "aws_cloudwatch_metric_alarm" "relay" {
  for_each = local.alarms

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  namespace           = "onewrite"
  metric_name         = each.value.metric
  dimensions          = { FunctionName = var.name }
  statistic           = "Maximum"
  period              = 600
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.above
  treat_missing_data  = each.value.missing
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
}

# A message that keeps failing shows in no age of a standard queue. The worker's log has a line for each failure. The filter is that of ../terraform.
resource "aws_cloudwatch_log_metric_filter" "unsettled" {
  count = local.is_worker ? 1 : 0

  name           = "unsettled"
  log_group_name = aws_cloudwatch_log_group.this.name
  pattern        = "{ $.onewrite.failures[0].error = \"*\" || $.onewrite.returned > 0 }"

  metric_transformation {
    namespace = "onewrite"
    name      = "Unsettled-${var.name}"
    value     = "1"
  }
}

resource "aws_cloudwatch_metric_alarm" "unsettled" {
  count = local.is_worker ? 1 : 0

  alarm_name          = "${var.name}-unsettled"
  alarm_description   = "Messages failed or were deferred in several periods in a row. They will be delivered again. The log names them."
  namespace           = "onewrite"
  metric_name         = "Unsettled-${var.name}"
  statistic           = "Sum"
  period              = 600
  evaluation_periods  = 2
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
}
