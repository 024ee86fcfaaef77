variable "name" {
  description = "The names of all resources begin with it."
  type        = string
  default     = "shop"
}

variable "package" {
  description = "The zip that infra/package.py writes, with orders.py, customers.py and ../relay/relay.py."
  type        = string
  default     = "../../../dist/function.zip"
}

variable "image" {
  description = "The image of infra/Dockerfile, with billing.py."
  type        = string
}

variable "provider_url" {
  description = "Where charges are made."
  type        = string
}

variable "cluster_arn" {
  description = "The ECS cluster."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets from which the provider, MongoDB and AWS are reached."
  type        = list(string)
}

variable "security_group_ids" {
  description = "What lets the containers out to these."
  type        = list(string)
}

variable "alarm_topic_arns" {
  description = "The SNS topics that the alarms notify."
  type        = list(string)
  default     = []
}

variable "deletion_protection" {
  description = "Keeps the tables from being destroyed, with the stack or by hand."
  type        = bool
  default     = true
}
