variable "name" {
  description = "The name of the table and the function."
  type        = string
  default     = "order-history"
}

variable "package" {
  description = "The zip file that `python3.13 infra/package.py` writes."
  type        = string
  default     = "../../../dist/function.zip"
}

variable "fifo" {
  description = "Whether the queue is FIFO. The view's ledger needs each aggregate's events in order: on a standard queue, it drops overtaken events."
  type        = bool
  default     = true
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
