variable "name" {
  description = "The function's name, and the prefix of all other resource names."
  type        = string
  default     = "stock"
}

variable "package" {
  description = "The zip file that infra/package.py writes."
  type        = string
  default     = "../../../dist/function.zip"
}

variable "vpc_id" {
  description = "The VPC of the subnets."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets of the VPC, in at least two zones."
  type        = list(string)
}

variable "mongodb_cidr" {
  description = "The CIDR blocks of MongoDB's subnets, or of its private endpoint."
  type        = string

  validation {
    condition     = can(cidrnetmask(var.mongodb_cidr))
    error_message = "mongodb_cidr: a CIDR block, for example 10.0.8.0/24."
  }
}

variable "mongodb_ports" {
  description = "MongoDB's first and last port. A private endpoint of Atlas has its own range, from 1024 on."
  type        = tuple([number, number])
  default     = [27017, 27017]

  validation {
    condition     = var.mongodb_ports[0] >= 1 && var.mongodb_ports[0] <= var.mongodb_ports[1] && var.mongodb_ports[1] <= 65535
    error_message = "mongodb_ports: two numbers between 1 and 65535, the smaller one first."
  }
}

variable "secrets_endpoint" {
  description = "Whether to create a VPC endpoint for Secrets Manager. Set it to false if the VPC already has one, or a NAT."
  type        = bool
  default     = true
}

variable "alarm_topic_arns" {
  description = "The SNS topics that the alarms notify."
  type        = list(string)
  default     = []
}
