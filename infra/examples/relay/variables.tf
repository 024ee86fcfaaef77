variable "name" {
  description = "The name of the table and of the function."
  type        = string
  default     = "orders-relay"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{3,50}$", var.name))
    error_message = "name: letters, digits, - and _, 3 to 50. The names of the table, the function and the topic are made of it."
  }
}

variable "package" {
  description = "The zip that infra/package.py writes."
  type        = string
  default     = "../../../dist/function.zip"
}

variable "fifo" {
  description = "Whether the topic keeps the order of each entity's events. Standard queues may subscribe to it as well, but keep no order."
  type        = bool
  default     = true
}

variable "target" {
  description = "Where the events go: \"topic\", which is made here, or \"queue\", which is yours: see target_queue_arn."
  type        = string
  default     = "topic"
  nullable    = false

  validation {
    condition     = contains(["topic", "queue"], var.target)
    error_message = "target: topic or queue."
  }

  validation {
    condition     = var.target == "topic" || var.fifo
    error_message = "target: with a queue, fifo = false has no effect. The queue is what it is."
  }
}

variable "target_queue_arn" {
  description = "The SQS queue that the events go to."
  type        = string
  default     = null

  validation {
    condition     = var.target_queue_arn == null ? true : can(regex("^arn:[^:]+:sqs:[^:]+:[0-9]{12}:[A-Za-z0-9_-]+(\\.fifo)?$", var.target_queue_arn))
    error_message = "target_queue_arn: arn:aws:sqs:REGION:ACCOUNT:NAME."
  }

  validation {
    condition     = (var.target_queue_arn != null) == (var.target == "queue")
    error_message = "target_queue_arn: give it with target = \"queue\", and only then."
  }
}

variable "batch_window_seconds" {
  description = "How long Lambda waits for a batch of the stream's records to fill: fewer invocations, and events that go out later."
  type        = number
  default     = 0
}

variable "sweep_minutes" {
  description = "Minutes between two sweeps."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = var.sweep_minutes >= 1 && var.sweep_minutes <= 5 && floor(var.sweep_minutes) == var.sweep_minutes
    error_message = "sweep_minutes: 1 to 5. EventBridge has no shorter time, and the alarm wants two reports in ten minutes."
  }
}

variable "oldest_event_seconds" {
  description = "Alarm when an event has been pending for longer."
  type        = number
  default     = 900
  nullable    = false

  validation {
    condition     = var.oldest_event_seconds > 60 * var.sweep_minutes && floor(var.oldest_event_seconds) == var.oldest_event_seconds
    error_message = "oldest_event_seconds: longer than the time between two sweeps, sweep_minutes. What the stream has not reported waits for so long."
  }
}

variable "alarm_topic_arns" {
  description = "The SNS topics that the alarms notify."
  type        = list(string)
  default     = []
}

variable "deletion_protection" {
  description = "Keeps the table from being destroyed, with the stack or by hand."
  type        = bool
  default     = true
}
