variable "name" {
  description = "The prefix of all resource names."
  type        = string
  default     = "shop"
}

variable "package" {
  description = "The zip file that infra/package.py writes, with orders.py, customers.py, and ../relay/relay.py."
  type        = string
  default     = "../../../dist/function.zip"
}

variable "image" {
  description = "The image built from infra/Dockerfile, with billing.py."
  type        = string
}

variable "provider_url" {
  description = "The URL of the payment provider."
  type        = string
}

variable "cluster_arn" {
  description = "The ECS cluster."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets that can reach the provider, MongoDB, and AWS."
  type        = list(string)
}

variable "security_group_ids" {
  description = "Security groups that let the containers connect to the provider, MongoDB, and AWS."
  type        = list(string)
}

variable "alarm_topic_arns" {
  description = "The SNS topics that the alarms notify."
  type        = list(string)
  default     = []
}

variable "deletion_protection" {
  description = "Whether the tables are protected from deletion, with the stack or by hand."
  type        = bool
  default     = true
}
