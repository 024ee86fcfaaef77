variable "name" {
  description = "The name of the table and the function."
  type        = string
  default     = "orders-relay"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{3,50}$", var.name))
    error_message = "name: letters, digits, - and _, 3 to 50, because the names of the table, the function, and the topic contain it."
  }
}

variable "package" {
  description = "The zip file that infra/package.py writes."
  type        = string
  default     = "../../../dist/function.zip"
}

variable "fifo" {
  description = "Whether the topic keeps the order of each entity's events. Standard queues can subscribe too, but they don't keep the order."
  type        = bool
  default     = true
}

variable "target" {
  description = "The target of the events: \"topic\", which this stack creates, or \"queue\", for your own queue in target_queue_arn."
  type        = string
  default     = "topic"
  nullable    = false

  validation {
    condition     = contains(["topic", "queue"], var.target)
    error_message = "target: topic or queue."
  }

  validation {
    condition     = var.target == "topic" || var.fifo
    error_message = "target: with your own queue, fifo = false has no effect."
  }
}

variable "target_queue_arn" {
  description = "Your SQS queue for the events."
  type        = string
  default     = null

  validation {
    condition     = var.target_queue_arn == null ? true : can(regex("^arn:[^:]+:sqs:[^:]+:[0-9]{12}:[A-Za-z0-9_-]+(\\.fifo)?$", var.target_queue_arn))
    error_message = "target_queue_arn: arn:aws:sqs:REGION:ACCOUNT:NAME."
  }

  validation {
    condition     = (var.target_queue_arn != null) == (var.target == "queue")
    error_message = "target_queue_arn: set it exactly if target = \"queue\"."
  }
}

variable "batch_window_seconds" {
  description = "How many seconds Lambda waits for a batch to fill. With a larger value, there are fewer invocations, and events are published later."
  type        = number
  default     = 0
}

variable "sweep_minutes" {
  description = "The number of minutes between two sweeps."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = var.sweep_minutes >= 1 && var.sweep_minutes <= 5 && floor(var.sweep_minutes) == var.sweep_minutes
    error_message = "sweep_minutes: must be between 1 and 5. EventBridge doesn't allow less, and the alarm needs two reports in ten minutes."
  }
}

variable "oldest_event_seconds" {
  description = "The age of a pending event, in seconds, that sets off the alarm."
  type        = number
  default     = 900
  nullable    = false

  validation {
    condition     = var.oldest_event_seconds > 60 * var.sweep_minutes && floor(var.oldest_event_seconds) == var.oldest_event_seconds
    error_message = "oldest_event_seconds: must be longer than sweep_minutes. Events that the stream hasn't reported wait that long."
  }
}

variable "alarm_topic_arns" {
  description = "The SNS topics that the alarms notify."
  type        = list(string)
  default     = []
}

variable "deletion_protection" {
  description = "Whether the table is protected from deletion, with the stack or by hand."
  type        = bool
  default     = true
}
