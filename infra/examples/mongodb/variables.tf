variable "name" {
  description = "The name of the function. The names of all other resources begin with it."
  type        = string
  default     = "stock"
}

variable "package" {
  description = "The zip that infra/package.py writes."
  type        = string
  default     = "../../../dist/function.zip"
}

variable "vpc_id" {
  description = "The VPC of the subnets."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets of the VPC, in two zones or more."
  type        = list(string)
}

variable "mongodb_cidr" {
  description = "Where MongoDB is: the addresses of its subnets, or of its private endpoint."
  type        = string

  validation {
    condition     = can(cidrnetmask(var.mongodb_cidr))
    error_message = "mongodb_cidr: as 10.0.8.0/24."
  }
}

variable "mongodb_ports" {
  description = "The first port and the last. A private endpoint of Atlas has a range of its own, from 1024 on."
  type        = tuple([number, number])
  default     = [27017, 27017]

  validation {
    condition     = var.mongodb_ports[0] >= 1 && var.mongodb_ports[0] <= var.mongodb_ports[1] && var.mongodb_ports[1] <= 65535
    error_message = "mongodb_ports: two numbers of 1 to 65535, the smaller one first."
  }
}

variable "secrets_endpoint" {
  description = "Whether to make a VPC endpoint for Secrets Manager. False if the VPC has one already, or a NAT."
  type        = bool
  default     = true
}

variable "alarm_topic_arns" {
  description = "The SNS topics that the alarms notify."
  type        = list(string)
  default     = []
}
