variable "name" {
  description = "The name of the table and of the function."
  type        = string
  default     = "order-history"
}

variable "package" {
  description = "The zip that `python3.13 infra/package.py` writes."
  type        = string
  default     = "../../../dist/function.zip"
}

variable "fifo" {
  description = "The view's marks need each aggregate's events in order. On a standard queue the step of an overtaken event is missing."
  type        = bool
  default     = true
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
