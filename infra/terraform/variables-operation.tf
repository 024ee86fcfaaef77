variable "oldest_message_seconds" {
  description = "The age of a message or a stream's record, in seconds, that sets off the alarm."
  type        = number
  default     = 900
  nullable    = false

  validation {
    condition     = var.oldest_message_seconds >= 60 && floor(var.oldest_message_seconds) == var.oldest_message_seconds
    error_message = "oldest_message_seconds: 60 or more. The age is measured once a minute."
  }

  validation {
    condition     = var.oldest_message_seconds < (var.event_source == "queue" ? var.message_retention_seconds : var.stream_maximum_age_seconds == -1 ? 31536000 : var.stream_maximum_age_seconds)
    error_message = "oldest_message_seconds: must be less than message_retention_seconds or stream_maximum_age_seconds. At that age a message is gone, and the alarm would never go off."
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

variable "alarms_left_out" {
  description = "Alarms to leave out. For a relay, leave out unsettled and unread, because it doesn't log batches, and a schedule invokes it."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(setsubtract(var.alarms_left_out, ["dead-letters", "oldest-message", "errors", "throttles", "unsettled", "unread"])) == 0
    error_message = "alarms_left_out: the alarms are dead-letters, oldest-message, errors, throttles, unsettled, and unread."
  }
}

variable "log_retention_days" {
  description = "How many days the function's log is kept. 0 keeps it forever."
  type        = number
  default     = 30
  nullable    = false

  validation {
    condition     = contains([0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_days)
    error_message = "log_retention_days: CloudWatch allows 0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288 or 3653."
  }
}
