variable "event_source" {
  description = "What feeds the function: \"queue\", which this module makes, or \"stream\", which is yours: see stream_arn."
  type        = string
  default     = "queue"
  nullable    = false

  validation {
    condition     = contains(["queue", "stream"], var.event_source)
    error_message = "event_source: queue or stream."
  }
}

variable "enabled" {
  description = "False: nothing is taken from the source, and waits there. This stops the function and loses nothing until the source forgets."
  type        = bool
  default     = true
  nullable    = false
}

variable "batch_size" {
  description = "Messages an invocation, at most. A FIFO queue gives no more than ten."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.batch_size >= 1 && var.batch_size <= 10000 && floor(var.batch_size) == var.batch_size
    error_message = "batch_size: Lambda allows 1 to 10000."
  }

  validation {
    condition     = var.batch_size <= 10 || !var.fifo
    error_message = "batch_size: a FIFO queue gives 1 to 10."
  }

  validation {
    condition     = var.batch_size <= 10 || var.event_source != "queue" || var.fifo || var.batch_window_seconds >= 1
    error_message = "batch_size: for more than 10 of a queue Lambda wants a batch_window_seconds of 1 or more."
  }
}

variable "batch_window_seconds" {
  description = "How long Lambda waits for a batch to fill. It adds to each message's age and to the time for which a queue hides it."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.batch_window_seconds >= 0 && var.batch_window_seconds <= 300 && floor(var.batch_window_seconds) == var.batch_window_seconds
    error_message = "batch_window_seconds: Lambda allows 0 to 300."
  }

  validation {
    condition     = var.batch_window_seconds == 0 || !var.fifo
    error_message = "batch_window_seconds: a FIFO queue has none."
  }
}

# ---------------------------------------------------------------- a queue

variable "fifo" {
  description = "A FIFO queue delivers each message group in order, which a ledger of marks needs. A standard queue is enough for SeenIds."
  type        = bool
  default     = false
  nullable    = false

  validation {
    condition     = !var.fifo || var.event_source == "queue"
    error_message = "fifo: a stream is none. Leave it out."
  }
}

variable "content_based_deduplication" {
  description = "SQS takes two messages with the same body within five minutes for one, if the sender gives no deduplication id."
  type        = bool
  default     = false
  nullable    = false

  validation {
    condition     = !var.content_based_deduplication || var.fifo
    error_message = "content_based_deduplication: only with fifo = true."
  }
}

variable "maximum_concurrency" {
  description = "Batches at a time. What is above it waits in the queue, where it is not throttled and not counted as received."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.maximum_concurrency >= 2 && var.maximum_concurrency <= 1000 && floor(var.maximum_concurrency) == var.maximum_concurrency
    error_message = "maximum_concurrency: Lambda allows 2 to 1000."
  }

  validation {
    condition     = var.event_source == "queue" || var.maximum_concurrency == 10
    error_message = "maximum_concurrency: the source is a stream. It would have no effect."
  }
}

variable "max_receive_count" {
  description = "Deliveries before a message goes to the dead letters. A deferred message uses them up too."
  type        = number
  default     = 5
  nullable    = false

  validation {
    condition     = var.max_receive_count >= 1 && var.max_receive_count <= 1000 && floor(var.max_receive_count) == var.max_receive_count
    error_message = "max_receive_count: SQS allows 1 to 1000."
  }

  validation {
    condition     = var.event_source == "queue" || var.max_receive_count == 5
    error_message = "max_receive_count: the source is a stream. It would have no effect."
  }
}

variable "message_retention_seconds" {
  description = "How long the queue keeps a message: four days."
  type        = number
  default     = 345600
  nullable    = false

  validation {
    condition     = var.message_retention_seconds >= 60 && var.message_retention_seconds <= 1209600 && floor(var.message_retention_seconds) == var.message_retention_seconds
    error_message = "message_retention_seconds: SQS allows 60 to 1209600, which are 14 days."
  }

  validation {
    condition     = var.message_retention_seconds > 6 * var.function_timeout + var.batch_window_seconds
    error_message = "message_retention_seconds: longer than a message is hidden after a failure, six times function_timeout and the batch window. It would be gone before its second delivery."
  }

  validation {
    condition     = var.event_source == "queue" || var.message_retention_seconds == 345600
    error_message = "message_retention_seconds: the source is a stream. It would have no effect."
  }
}

variable "dead_letter_retention_seconds" {
  description = "How long a dead letter is kept: 14 days. On a standard queue that counts from when the message was first sent."
  type        = number
  default     = 1209600
  nullable    = false

  validation {
    condition     = var.dead_letter_retention_seconds >= 86400 && var.dead_letter_retention_seconds <= 1209600 && floor(var.dead_letter_retention_seconds) == var.dead_letter_retention_seconds
    error_message = "dead_letter_retention_seconds: 86400 to 1209600, a day to 14 days. What is kept for less is gone before anyone has seen it."
  }

  validation {
    condition     = var.event_source != "queue" || var.fifo || var.dead_letter_retention_seconds > var.message_retention_seconds
    error_message = "dead_letter_retention_seconds: longer than message_retention_seconds. A message of a standard queue takes its age along, and would be gone before anyone has seen it."
  }
}

variable "sns_topic_arns" {
  description = "The SNS topics that may send to the queue. The subscriptions are yours."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.sns_topic_arns : can(regex("^arn:[^:]+:sns:[^:]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}(\\.fifo)?$", arn))])
    error_message = "sns_topic_arns: arn:aws:sns:REGION:ACCOUNT:NAME."
  }

  validation {
    condition     = !var.fifo || alltrue([for arn in var.sns_topic_arns : endswith(arn, ".fifo")])
    error_message = "sns_topic_arns: SNS delivers to a FIFO queue from FIFO topics only."
  }

  validation {
    condition     = length(var.sns_topic_arns) == 0 || var.event_source == "queue"
    error_message = "sns_topic_arns: they send to a queue, and the source is a stream."
  }
}

variable "event_rule_arns" {
  description = "The rules of EventBridge that may send to the queue. The targets are yours."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.event_rule_arns : can(regex("^arn:[^:]+:events:[^:]+:[0-9]{12}:rule/.+$", arn))])
    error_message = "event_rule_arns: arn:aws:events:REGION:ACCOUNT:rule/NAME, or rule/BUS/NAME."
  }

  validation {
    condition     = length(var.event_rule_arns) == 0 || !var.fifo || var.content_based_deduplication
    error_message = "event_rule_arns: EventBridge gives no deduplication id, so a FIFO queue needs content_based_deduplication = true."
  }

  validation {
    condition     = length(var.event_rule_arns) == 0 || var.event_source == "queue"
    error_message = "event_rule_arns: they send to a queue, and the source is a stream."
  }
}

variable "s3_bucket_arns" {
  description = "The S3 buckets of this account that may send to the queue. The notifications are yours."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.s3_bucket_arns : can(regex("^arn:[^:]+:s3:::[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", arn))])
    error_message = "s3_bucket_arns: arn:aws:s3:::NAME, without a path."
  }

  validation {
    condition     = length(var.s3_bucket_arns) == 0 || !var.fifo
    error_message = "s3_bucket_arns: S3 sends to no FIFO queue. Let it send through EventBridge."
  }

  validation {
    condition     = length(var.s3_bucket_arns) == 0 || var.event_source == "queue"
    error_message = "s3_bucket_arns: they send to a queue, and the source is a stream."
  }
}

# ---------------------------------------------------------------- a stream

variable "stream_arn" {
  description = "Your Kinesis stream, or the stream of your DynamoDB table."
  type        = string
  default     = null

  validation {
    condition     = var.stream_arn == null ? true : can(regex("^arn:[^:]+:(kinesis:[^:]+:[0-9]{12}:stream/[A-Za-z0-9_.-]+|dynamodb:[^:]+:[0-9]{12}:table/[^/]+/stream/.+)$", var.stream_arn))
    error_message = "stream_arn: arn:aws:kinesis:REGION:ACCOUNT:stream/NAME or arn:aws:dynamodb:REGION:ACCOUNT:table/NAME/stream/LABEL."
  }

  validation {
    condition     = (var.stream_arn != null) == (var.event_source == "stream")
    error_message = "stream_arn: give it with event_source = \"stream\", and only then."
  }
}

variable "stream_kms_key_arn" {
  description = "The key of a Kinesis stream that is encrypted with a key of yours. None for AWS's own key, and for DynamoDB."
  type        = string
  default     = null

  validation {
    condition     = var.stream_kms_key_arn == null ? true : can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/.+$", var.stream_kms_key_arn))
    error_message = "stream_kms_key_arn: arn:aws:kms:REGION:ACCOUNT:key/ID."
  }

  validation {
    condition     = var.stream_kms_key_arn == null || var.event_source == "stream"
    error_message = "stream_kms_key_arn: the source is a queue."
  }
}

variable "stream_starting_position" {
  description = "Where a new function begins: TRIM_HORIZON, the oldest record that the stream still has, or LATEST."
  type        = string
  default     = "TRIM_HORIZON"
  nullable    = false

  validation {
    condition     = contains(["TRIM_HORIZON", "LATEST"], var.stream_starting_position)
    error_message = "stream_starting_position: TRIM_HORIZON or LATEST."
  }

  validation {
    condition     = var.event_source == "stream" || var.stream_starting_position == "TRIM_HORIZON"
    error_message = "stream_starting_position: the source is a queue. It would have no effect."
  }
}

variable "stream_maximum_age_seconds" {
  description = "A record that is older is given up, and described among the dead letters. Six hours: of a stream that keeps its records for a day, 18 hours are left to fetch it. -1: never."
  type        = number
  default     = 21600
  nullable    = false

  validation {
    condition     = var.stream_maximum_age_seconds == -1 || (var.stream_maximum_age_seconds >= 60 && var.stream_maximum_age_seconds <= 604800 && floor(var.stream_maximum_age_seconds) == var.stream_maximum_age_seconds)
    error_message = "stream_maximum_age_seconds: -1, or 60 to 604800."
  }

  validation {
    condition     = var.event_source == "stream" || var.stream_maximum_age_seconds == 21600
    error_message = "stream_maximum_age_seconds: the source is a queue. It would have no effect."
  }
}

variable "stream_maximum_retries" {
  description = "A record that has failed more often is given up. -1: only its age counts, since an outage of a minute can use up any number."
  type        = number
  default     = -1
  nullable    = false

  validation {
    condition     = var.stream_maximum_retries >= -1 && var.stream_maximum_retries <= 10000 && floor(var.stream_maximum_retries) == var.stream_maximum_retries
    error_message = "stream_maximum_retries: -1, or 0 to 10000."
  }

  validation {
    condition     = var.event_source == "stream" || var.stream_maximum_retries == -1
    error_message = "stream_maximum_retries: the source is a queue. It would have no effect."
  }
}

variable "stream_bisect" {
  description = "Whether a batch whose invocation failed as a whole is cut in two and tried again, so that one record does not take the others along."
  type        = bool
  default     = true
  nullable    = false

  validation {
    condition     = var.event_source == "stream" || var.stream_bisect == true
    error_message = "stream_bisect: the source is a queue. It would have no effect."
  }
}
