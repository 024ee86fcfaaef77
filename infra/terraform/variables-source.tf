variable "event_source" {
  description = "The source of messages: \"queue\", which this module creates, or \"stream\", for your own stream in stream_arn."
  type        = string
  default     = "queue"
  nullable    = false

  validation {
    condition     = contains(["queue", "stream"], var.event_source)
    error_message = "event_source: queue or stream."
  }
}

variable "enabled" {
  description = "Whether the function receives messages. With false, they wait in the source, and none is lost until the source's retention ends."
  type        = bool
  default     = true
  nullable    = false
}

variable "batch_size" {
  description = "The maximum number of messages per invocation. For a FIFO queue, it's at most ten."
  type        = number
  default     = 10
  nullable    = false

  validation {
    condition     = var.batch_size >= 1 && var.batch_size <= 10000 && floor(var.batch_size) == var.batch_size
    error_message = "batch_size: Lambda allows 1 to 10000."
  }

  validation {
    condition     = var.batch_size <= 10 || !var.fifo
    error_message = "batch_size: a FIFO queue allows 1 to 10."
  }

  validation {
    condition     = var.batch_size <= 10 || var.event_source != "queue" || var.fifo || var.batch_window_seconds >= 1
    error_message = "batch_size: for more than 10 messages of a queue, set batch_window_seconds to 1 or more."
  }
}

variable "batch_window_seconds" {
  description = "How many seconds Lambda waits for a batch to fill. This adds to each message's age and to the queue's visibility timeout."
  type        = number
  default     = 0
  nullable    = false

  validation {
    condition     = var.batch_window_seconds >= 0 && var.batch_window_seconds <= 300 && floor(var.batch_window_seconds) == var.batch_window_seconds
    error_message = "batch_window_seconds: Lambda allows 0 to 300."
  }

  validation {
    condition     = var.batch_window_seconds == 0 || !var.fifo
    error_message = "batch_window_seconds: a FIFO queue doesn't allow it."
  }
}

# ---------------------------------------------------------------- a queue

variable "fifo" {
  description = "Whether the queue is FIFO. It then delivers each message group in order, which HighWaterMark needs. For SeenIds, a standard queue is enough."
  type        = bool
  default     = false
  nullable    = false

  validation {
    condition     = !var.fifo || var.event_source == "queue"
    error_message = "fifo: a stream isn't a queue. Leave it out."
  }
}

variable "content_based_deduplication" {
  description = "Whether SQS drops a second message with the same body within five minutes, if the sender doesn't set a deduplication ID."
  type        = bool
  default     = false
  nullable    = false

  validation {
    condition     = !var.content_based_deduplication || var.fifo
    error_message = "content_based_deduplication: only with fifo = true."
  }
}

variable "maximum_concurrency" {
  description = "The maximum number of concurrent batches. More messages wait in the queue without using up deliveries."
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
  description = "The number of deliveries before a message goes to the dead-letter queue. A deferred message uses them up too."
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
  description = "How many seconds the queue keeps a message: four days by default."
  type        = number
  default     = 345600
  nullable    = false

  validation {
    condition     = var.message_retention_seconds >= 60 && var.message_retention_seconds <= 1209600 && floor(var.message_retention_seconds) == var.message_retention_seconds
    error_message = "message_retention_seconds: SQS allows 60 to 1209600, or 14 days."
  }

  validation {
    condition     = var.message_retention_seconds > 6 * var.function_timeout + var.batch_window_seconds
    error_message = "message_retention_seconds: must be longer than a failed message is hidden, which is six times function_timeout, plus the batch window. Otherwise the message is gone before its second delivery."
  }

  validation {
    condition     = var.event_source == "queue" || var.message_retention_seconds == 345600
    error_message = "message_retention_seconds: the source is a stream. It would have no effect."
  }
}

variable "dead_letter_retention_seconds" {
  description = "How many seconds the dead-letter queue keeps a message: 14 days by default. For a standard queue, they count from the first send."
  type        = number
  default     = 1209600
  nullable    = false

  validation {
    condition     = var.dead_letter_retention_seconds >= 86400 && var.dead_letter_retention_seconds <= 1209600 && floor(var.dead_letter_retention_seconds) == var.dead_letter_retention_seconds
    error_message = "dead_letter_retention_seconds: must be between 86400 and 1209600, a day to 14 days. A shorter retention leaves no time to find the message."
  }

  validation {
    condition     = var.event_source != "queue" || var.fifo || var.dead_letter_retention_seconds > var.message_retention_seconds
    error_message = "dead_letter_retention_seconds: must be longer than message_retention_seconds. A message of a standard queue keeps its age, so it would be gone before anyone sees it."
  }
}

variable "sns_topic_arns" {
  description = "The SNS topics that can send to the queue. Create the subscriptions yourself."
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
    error_message = "sns_topic_arns: topics send to a queue, but the source is a stream."
  }
}

variable "event_rule_arns" {
  description = "The EventBridge rules that can send to the queue. Create the targets yourself."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.event_rule_arns : can(regex("^arn:[^:]+:events:[^:]+:[0-9]{12}:rule/.+$", arn))])
    error_message = "event_rule_arns: arn:aws:events:REGION:ACCOUNT:rule/NAME, or rule/BUS/NAME."
  }

  validation {
    condition     = length(var.event_rule_arns) == 0 || !var.fifo || var.content_based_deduplication
    error_message = "event_rule_arns: EventBridge doesn't set a deduplication ID. For a FIFO queue, set content_based_deduplication = true."
  }

  validation {
    condition     = length(var.event_rule_arns) == 0 || var.event_source == "queue"
    error_message = "event_rule_arns: rules send to a queue, but the source is a stream."
  }
}

variable "s3_bucket_arns" {
  description = "The S3 buckets of this account that can send to the queue. Create the notifications yourself."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.s3_bucket_arns : can(regex("^arn:[^:]+:s3:::[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", arn))])
    error_message = "s3_bucket_arns: arn:aws:s3:::NAME, without a path."
  }

  validation {
    condition     = length(var.s3_bucket_arns) == 0 || !var.fifo
    error_message = "s3_bucket_arns: S3 can't send to a FIFO queue. Use EventBridge in between."
  }

  validation {
    condition     = length(var.s3_bucket_arns) == 0 || var.event_source == "queue"
    error_message = "s3_bucket_arns: buckets send to a queue, but the source is a stream."
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
    error_message = "stream_arn: set it exactly if event_source = \"stream\"."
  }
}

variable "stream_kms_key_arn" {
  description = "The key of a Kinesis stream that you encrypted with your own key. Use null for AWS's own key, and for DynamoDB."
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
  description = "The position at which a new function begins: TRIM_HORIZON, the stream's oldest record, or LATEST."
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
  description = "The age in seconds at which a record is given up and described in the dead-letter queue. With the default of six hours, and a stream that keeps records for a day, 18 hours remain to fetch it. -1 means never."
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
  description = "The number of retries before a record is given up. With -1, only its age counts, because a short outage can use up any number."
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
  description = "Whether a batch whose whole invocation failed is split in two and retried, so that one record doesn't fail the others."
  type        = bool
  default     = true
  nullable    = false

  validation {
    condition     = var.event_source == "stream" || var.stream_bisect == true
    error_message = "stream_bisect: the source is a queue. It would have no effect."
  }
}
