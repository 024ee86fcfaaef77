variable "name" {
  description = "What the names of the resources begin with."
  type        = string
  default     = "order-history"

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{1,50}$", var.name))
    error_message = "Letters, digits, - and _, at most 50: the queues' names are made of it."
  }
}

variable "package" {
  description = "The zip with the function's code, as infra/package.py writes it."
  type        = string
}

variable "handler" {
  description = "The function in the package: module.name."
  type        = string
  default     = "order_history.feed.handler"
}

variable "environment" {
  description = "Further environment variables of the function, beside ORDERS_TABLE."
  type        = map(string)
  default     = {}
}

variable "runtime" {
  type    = string
  default = "python3.13"
}

variable "architecture" {
  type    = string
  default = "arm64"

  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "arm64 or x86_64."
  }
}

variable "memory_size" {
  description = "Megabytes. The share of a processor grows with them."
  type        = number
  default     = 512
}

variable "fifo" {
  description = "A FIFO queue delivers each message group in order, which a ledger of marks needs. A standard queue is enough for SeenIds."
  type        = bool
  default     = true
}

variable "function_timeout" {
  description = "Seconds for a batch. The queue hides its messages for six times as long."
  type        = number
  default     = 30

  validation {
    condition     = var.function_timeout >= 1 && var.function_timeout <= 900
    error_message = "Lambda allows 1 to 900 seconds."
  }
}

variable "batch_size" {
  description = "Messages an invocation. A FIFO queue gives no more than ten."
  type        = number
  default     = 10

  validation {
    condition     = var.batch_size >= 1 && var.batch_size <= 10
    error_message = "1 to 10."
  }
}

variable "maximum_concurrency" {
  description = "Batches at a time. What is above it waits in the queue, where it is not throttled and not counted as received."
  type        = number
  default     = 10

  validation {
    condition     = var.maximum_concurrency >= 2 && var.maximum_concurrency <= 1000
    error_message = "Lambda allows 2 to 1000."
  }
}

variable "max_receive_count" {
  description = "Deliveries before a message goes to the dead letters. A deferred message uses them up too."
  type        = number
  default     = 5

  validation {
    condition     = var.max_receive_count >= 1 && var.max_receive_count <= 1000
    error_message = "SQS allows 1 to 1000."
  }
}

variable "oldest_message_seconds" {
  description = "Alarm when a message has waited for longer."
  type        = number
  default     = 900
}

variable "alarm_topic_arns" {
  description = "The SNS topics that the alarms tell. Empty for alarms that only show."
  type        = list(string)
  default     = []
}

variable "log_retention_days" {
  type    = number
  default = 30
}

variable "deletion_protection" {
  description = "Keeps the table from being destroyed, with the module or by hand."
  type        = bool
  default     = true
}
