variable "name" {
  description = "The name of the table and the function."
  type        = string
  default     = "meters"
}

variable "package" {
  description = "The zip file that infra/package.py writes."
  type        = string
  default     = "../../../dist/function.zip"
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
