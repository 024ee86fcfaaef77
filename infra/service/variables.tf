variable "name" {
  description = "The service's name, and the prefix of all other resource names."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{1,50}$", var.name))
    error_message = "name: letters, digits, - and _, at most 50."
  }
}

variable "image" {
  description = "The container image built from infra/Dockerfile, with its tag or digest."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[^\\s]+[:@][^\\s/]+$", var.image))
    error_message = "image: with its tag or digest, for example 123456789012.dkr.ecr.eu-west-1.amazonaws.com/shop:1."
  }
}

variable "worker" {
  description = "MODULE:HANDLER, for `onewrite worker` on the queue queue_arn."
  type        = string
  default     = null

  validation {
    condition     = (var.worker == null) != (var.relay == null)
    error_message = "worker: set either worker or relay."
  }

  validation {
    condition     = var.worker == null ? true : can(regex("^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*$", var.worker))
    error_message = "worker: MODULE:HANDLER, for example shop.handlers:ship."
  }
}

variable "relay" {
  description = "MODULE:RELAY, for `onewrite relay`."
  type        = string
  default     = null

  validation {
    condition     = var.relay == null ? true : can(regex("^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*$", var.relay))
    error_message = "relay: MODULE:RELAY, for example shop.relays:orders."
  }
}

variable "queue_arn" {
  description = "The worker's queue. The module in ../terraform creates one with function = false."
  type        = string
  default     = null

  validation {
    condition     = var.queue_arn == null ? true : can(regex("^arn:[^:]+:sqs:[^:]+:[0-9]{12}:[A-Za-z0-9_-]+(\\.fifo)?$", var.queue_arn))
    error_message = "queue_arn: arn:aws:sqs:REGION:ACCOUNT:NAME."
  }

  validation {
    condition     = (var.queue_arn != null) == (var.worker != null)
    error_message = "queue_arn: set it for a worker, and not for a relay. Name a relay's target in its policy."
  }
}

variable "options" {
  description = "More options of the command, for example [\"--in-flight\", \"20\"]."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition = length(setintersection([for option in var.options : split("=", option)[0]], [
      "--drain-seconds", "--health-host", "--health-port", "--log-format", "--log-level", "--queue-url",
    ])) == 0
    error_message = "options: the stack depends on drain_seconds, health_port, log_level, log_format, and queue_arn. Set these variables instead."
  }

  validation {
    condition = length(setintersection([for option in var.options : split("=", option)[0]], [
      "--help", "--once", "--restart", "--skip", "--stop-when-empty", "--stuck", "--version",
    ])) == 0
    error_message = "options: a service runs forever. Run --once, --stuck, and other commands that end by hand."
  }
}

variable "health_port" {
  description = "For a worker, the container's port for /health."
  type        = number
  default     = 8080
  nullable    = false

  validation {
    condition     = var.health_port >= 1 && var.health_port <= 65535 && floor(var.health_port) == var.health_port
    error_message = "health_port: 1 to 65535."
  }

  validation {
    condition     = var.worker != null || var.health_port == 8080
    error_message = "health_port: only a worker has one. It would have no effect."
  }
}

variable "drain_seconds" {
  description = "How many seconds the command can finish its work after a stop. ECS kills it five seconds later."
  type        = number
  default     = 25
  nullable    = false

  validation {
    condition     = var.drain_seconds >= 0 && var.drain_seconds <= 115 && floor(var.drain_seconds) == var.drain_seconds
    error_message = "drain_seconds: 0 to 115. Fargate kills a container after 120 seconds."
  }
}

variable "log_level" {
  description = "The lowest log level: DEBUG, INFO, or WARNING."
  type        = string
  default     = "INFO"
  nullable    = false

  validation {
    condition     = contains(["DEBUG", "INFO", "WARNING"], var.log_level)
    error_message = "log_level: DEBUG, INFO, or WARNING. With ERROR, the log doesn't name redelivered messages, and their alarm never goes off."
  }
}

variable "log_format" {
  description = "The log format: json, or text for a relay."
  type        = string
  default     = "json"
  nullable    = false

  validation {
    condition     = contains(["json", "text"], var.log_format)
    error_message = "log_format: json or text."
  }

  validation {
    condition     = var.worker == null || var.log_format == "json"
    error_message = "log_format: must be json for a worker, because its alarm counts the fields of the lines."
  }
}

variable "environment" {
  description = "The containers' environment variables."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for name in keys(var.environment) : can(regex("^[A-Za-z_][A-Za-z0-9_]*$", name))])
    error_message = "environment: a name begins with a letter or _, followed by letters, digits, and _."
  }

  validation {
    condition     = !contains(keys(var.environment), "AWS_LAMBDA_FUNCTION_NAME")
    error_message = "environment: the stack sets AWS_LAMBDA_FUNCTION_NAME, because the alarms look for that name in the metrics."
  }

  validation {
    condition     = !anytrue([for name in keys(var.environment) : can(regex("^ONEWRITE_(WORKER|RELAY)_", name))])
    error_message = "environment: set the command's options in options instead."
  }
}

variable "secret_arns" {
  description = "Secrets that the service can read. Maps the environment variable for a secret's ARN to that ARN."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for name in keys(var.secret_arns) : can(regex("^[A-Za-z_][A-Za-z0-9_]*$", name)) && !contains(keys(var.environment), name)])
    error_message = "secret_arns: a key must be a valid name of an environment variable, and not also in environment."
  }

  validation {
    condition     = alltrue([for arn in values(var.secret_arns) : can(regex("^arn:[^:]+:secretsmanager:[^:]+:[0-9]{12}:secret:.+-[A-Za-z0-9]{6}$", arn))])
    error_message = "secret_arns: the whole ARN, arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-123456."
  }
}

variable "policy" {
  description = "More permissions of the service, as the JSON of a policy document."
  type        = string
  default     = null

  validation {
    condition     = var.policy == null ? true : can(jsondecode(var.policy).Statement)
    error_message = "policy: the JSON of a policy document, for example from jsonencode or aws_iam_policy_document."
  }
}

variable "cluster_arn" {
  description = "The ECS cluster."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^arn:[^:]+:ecs:[^:]+:[0-9]{12}:cluster/.+$", var.cluster_arn))
    error_message = "cluster_arn: arn:aws:ecs:REGION:ACCOUNT:cluster/NAME."
  }
}

variable "subnet_ids" {
  description = "Private subnets. They need a NAT or VPC endpoints to reach AWS and the database."
  type        = list(string)
  nullable    = false

  validation {
    condition     = length(var.subnet_ids) > 0 && length(var.subnet_ids) <= 16
    error_message = "subnet_ids: 1 to 16."
  }
}

variable "security_group_ids" {
  description = "Security groups that let the service connect to AWS and its database."
  type        = list(string)
  nullable    = false

  validation {
    condition     = length(var.security_group_ids) > 0 && length(var.security_group_ids) <= 5
    error_message = "security_group_ids: 1 to 5."
  }
}

variable "architecture" {
  description = "The processor: arm64 or x86_64. Build the image for it."
  type        = string
  default     = "arm64"
  nullable    = false

  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "architecture: arm64 or x86_64."
  }
}

variable "cpu" {
  description = "CPU units: 1024 are one processor."
  type        = number
  default     = 256
  nullable    = false

  validation {
    condition     = contains([256, 512, 1024, 2048, 4096, 8192, 16384], var.cpu)
    error_message = "cpu: Fargate allows 256, 512, 1024, 2048, 4096, 8192 or 16384."
  }
}

variable "memory" {
  description = "The memory in megabytes. Fargate limits it by cpu: 512 to 2048 for 256, 1024 to 4096 for 512, and so on."
  type        = number
  default     = 512
  nullable    = false

  validation {
    condition = contains(lookup({
      "256"   = [512, 1024, 2048]
      "512"   = range(1024, 4096 + 1, 1024)
      "1024"  = range(2048, 8192 + 1, 1024)
      "2048"  = range(4096, 16384 + 1, 1024)
      "4096"  = range(8192, 30720 + 1, 1024)
      "8192"  = range(16384, 61440 + 1, 4096)
      "16384" = range(32768, 122880 + 1, 8192)
    }, tostring(var.cpu), [var.memory]), var.memory) # a cpu that Fargate does not have is refused above
    error_message = "memory: Fargate allows 512, 1024 or 2048 for a cpu of 256; 1024 to 4096 for 512, 2048 to 8192 for 1024, 4096 to 16384 for 2048, and 8192 to 30720 for 4096, in steps of 1024; 16384 to 61440 for 8192, in steps of 4096; and 32768 to 122880 for 16384, in steps of 8192."
  }
}

variable "tasks" {
  description = "The number of containers. For a relay, one is enough; two sometimes publish copies. With 0, the alarms on waiting messages and events stay on."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = var.tasks >= 0 && floor(var.tasks) == var.tasks
    error_message = "tasks: 0 or more."
  }
}

variable "oldest_event_seconds" {
  description = "For a relay, the age of a pending event, in seconds, that sets off the alarm."
  type        = number
  default     = 900
  nullable    = false

  validation {
    condition     = var.oldest_event_seconds >= 60 && floor(var.oldest_event_seconds) == var.oldest_event_seconds
    error_message = "oldest_event_seconds: 60 or more."
  }

  validation {
    condition     = var.relay != null || var.oldest_event_seconds == 900
    error_message = "oldest_event_seconds: only for a relay. It would have no effect."
  }
}

variable "alarm_topic_arns" {
  description = "The SNS topics that the alarms notify. If it's empty, you see alarms only in CloudWatch."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.alarm_topic_arns : can(regex("^arn:[^:]+:sns:[^:]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}$", arn))])
    error_message = "alarm_topic_arns: arn:aws:sns:REGION:ACCOUNT:NAME. CloudWatch alarms cannot notify FIFO topics."
  }

  validation {
    condition     = length(var.alarm_topic_arns) <= 5
    error_message = "alarm_topic_arns: CloudWatch allows five."
  }
}

variable "log_retention_days" {
  description = "How many days the log is kept. 0 keeps it forever."
  type        = number
  default     = 30
  nullable    = false

  validation {
    condition     = contains([0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_days)
    error_message = "log_retention_days: a number of days that CloudWatch allows, for example 7, 30, 90, or 365; 0 keeps the log forever."
  }
}
