variable "name" {
  description = "The service's name. The names of all other resources begin with it."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{1,50}$", var.name))
    error_message = "name: letters, digits, - and _, at most 50."
  }
}

variable "image" {
  description = "The container image, as infra/Dockerfile builds it, with its tag or digest."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[^\\s]+[:@][^\\s/]+$", var.image))
    error_message = "image: with its tag or digest, as 123456789012.dkr.ecr.eu-west-1.amazonaws.com/shop:1."
  }
}

variable "worker" {
  description = "MODULE:HANDLER, for `onewrite worker` on the queue queue_arn."
  type        = string
  default     = null

  validation {
    condition     = (var.worker == null) != (var.relay == null)
    error_message = "worker: give either worker or relay."
  }

  validation {
    condition     = var.worker == null ? true : can(regex("^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*$", var.worker))
    error_message = "worker: MODULE:HANDLER, as shop.handlers:ship."
  }
}

variable "relay" {
  description = "MODULE:RELAY, for `onewrite relay`."
  type        = string
  default     = null

  validation {
    condition     = var.relay == null ? true : can(regex("^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*$", var.relay))
    error_message = "relay: MODULE:RELAY, as shop.relays:orders."
  }
}

variable "queue_arn" {
  description = "The queue that a worker takes from, as the module in ../terraform makes it with function = false."
  type        = string
  default     = null

  validation {
    condition     = var.queue_arn == null ? true : can(regex("^arn:[^:]+:sqs:[^:]+:[0-9]{12}:[A-Za-z0-9_-]+(\\.fifo)?$", var.queue_arn))
    error_message = "queue_arn: arn:aws:sqs:REGION:ACCOUNT:NAME."
  }

  validation {
    condition     = (var.queue_arn != null) == (var.worker != null)
    error_message = "queue_arn: a worker needs one, and a relay has none. Where a relay may send to is in its policy."
  }
}

variable "options" {
  description = "Further options of the command, as [\"--in-flight\", \"20\"]."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "environment" {
  description = "The containers' environment variables."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "secret_arns" {
  description = "Secrets that the service may read: the environment variable that is to hold the ARN, and the ARN."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for arn in values(var.secret_arns) : can(regex("^arn:[^:]+:secretsmanager:[^:]+:[0-9]{12}:secret:.+-[A-Za-z0-9]{6}$", arn))])
    error_message = "secret_arns: the whole ARN, arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-123456."
  }
}

variable "policy" {
  description = "What else the service may do, as the JSON of a policy document."
  type        = string
  default     = null

  validation {
    condition     = var.policy == null ? true : can(jsondecode(var.policy).Statement)
    error_message = "policy: the JSON of a policy document, as jsonencode or aws_iam_policy_document gives it."
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
  description = "Private subnets. From there the service reaches AWS and its database through a NAT or VPC endpoints."
  type        = list(string)
  nullable    = false

  validation {
    condition     = length(var.subnet_ids) > 0 && length(var.subnet_ids) <= 16
    error_message = "subnet_ids: 1 to 16."
  }
}

variable "security_group_ids" {
  description = "What lets the service out to AWS and to its database."
  type        = list(string)
  nullable    = false

  validation {
    condition     = length(var.security_group_ids) > 0 && length(var.security_group_ids) <= 5
    error_message = "security_group_ids: 1 to 5."
  }
}

variable "architecture" {
  description = "The processor, arm64 or x86_64. The image must be built for the same."
  type        = string
  default     = "arm64"
  nullable    = false

  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "architecture: arm64 or x86_64."
  }
}

variable "cpu" {
  description = "Units of a processor, of which it has 1024."
  type        = number
  default     = 256
  nullable    = false

  validation {
    condition     = contains([256, 512, 1024, 2048, 4096], var.cpu)
    error_message = "cpu: Fargate allows 256, 512, 1024, 2048 or 4096 here."
  }
}

variable "memory" {
  description = "Megabytes, two to eight for each unit of cpu."
  type        = number
  default     = 512
  nullable    = false

  validation {
    condition     = var.memory >= 2 * var.cpu && var.memory <= 8 * var.cpu && var.memory % (var.cpu == 256 ? 512 : 1024) == 0
    error_message = "memory: Fargate allows two to eight megabytes for each unit of cpu, in steps of 1024."
  }
}

variable "tasks" {
  description = "How many containers run. For a relay one is enough; two publish copies now and then."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = var.tasks >= 0 && floor(var.tasks) == var.tasks
    error_message = "tasks: 0 or more."
  }
}

variable "oldest_event_seconds" {
  description = "For a relay: alarm when an event has been pending for longer."
  type        = number
  default     = 900
  nullable    = false

  validation {
    condition     = var.oldest_event_seconds >= 60 && floor(var.oldest_event_seconds) == var.oldest_event_seconds
    error_message = "oldest_event_seconds: 60 or more."
  }

  validation {
    condition     = var.relay != null || var.oldest_event_seconds == 900
    error_message = "oldest_event_seconds: of a relay alone. It would have no effect."
  }
}

variable "alarm_topic_arns" {
  description = "The SNS topics that the alarms notify. Empty for alarms that only show."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "log_retention_days" {
  description = "How long the log is kept. 0: for ever."
  type        = number
  default     = 30
  nullable    = false

  validation {
    condition     = contains([0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_days)
    error_message = "log_retention_days: a number of days that CloudWatch allows, as 7, 30, 90 or 365; 0 for ever."
  }
}
