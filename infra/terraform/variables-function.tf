variable "name" {
  description = "The function's name, and the prefix of all other resource names."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{1,50}$", var.name))
    error_message = "name: letters, digits, - and _, at most 50, because the queues' names contain it."
  }
}

variable "function" {
  description = "Whether to create a function. With false, there's only the queue, its dead-letter queue, and its alarms, for a worker."
  type        = bool
  default     = true
  nullable    = false

  validation {
    condition     = var.function || var.event_source == "queue"
    error_message = "function: a stream needs one."
  }

  validation {
    condition = var.function || (
      length(var.environment) == 0 && length(var.secret_arns) == 0 && var.table_arn == null && var.policy == null && var.permissions_boundary == null
      && length(var.layers) == 0 && length(var.subnet_ids) == 0 && var.reserved_concurrency == null && !var.tracing && var.enabled
      && var.maximum_concurrency == 10 && var.batch_size == 10
    )
    error_message = "function: with false, the environment, permissions, layers, network, concurrency, traces, and batches would have no effect. Leave them out."
  }
}

variable "package" {
  description = "The path of the zip file with the function's code, which infra/package.py writes."
  type        = string
  default     = null

  validation {
    condition     = var.function ? (var.package == null) != (var.image_uri == null) : var.package == null && var.image_uri == null && var.handler == null
    error_message = "package: set either package (a zip file) or image_uri (a container image), and neither with function = false."
  }

  validation {
    condition     = var.package == null ? true : fileexists(var.package)
    error_message = "package: the file doesn't exist. `python infra/package.py` writes one."
  }
}

variable "image_uri" {
  description = "The container image in ECR with the function's code, instead of a package."
  type        = string
  default     = null

  validation {
    condition     = var.image_uri == null ? true : can(regex("^[0-9]{12}\\.dkr\\.ecr\\..+/.+[:@].+$", var.image_uri))
    error_message = "image_uri: an image in ECR with its tag or digest, for example 123456789012.dkr.ecr.eu-west-1.amazonaws.com/shop:1."
  }
}

variable "handler" {
  description = "The function in the package, as module.name. For an image, it overrides CMD."
  type        = string
  default     = null

  validation {
    condition     = var.handler == null ? var.image_uri != null || !var.function : can(regex("^[A-Za-z_][A-Za-z0-9_]*(\\.[A-Za-z_][A-Za-z0-9_]*)+$", var.handler))
    error_message = "handler: module.name, for example shop.handlers.ship. Only an image can leave it out."
  }
}

variable "runtime" {
  description = "Lambda's Python version. Build the package for it. An image contains its own."
  type        = string
  default     = "python3.13"
  nullable    = false

  validation {
    condition     = can(regex("^python3\\.1[1-9]$", var.runtime))
    error_message = "runtime: python3.11 or newer, for example python3.13."
  }

  validation {
    condition     = var.image_uri == null || var.runtime == "python3.13"
    error_message = "runtime: an image contains its own. It would have no effect."
  }
}

variable "architecture" {
  description = "The processor. Build a package with compiled modules, such as pymongo's, for it."
  type        = string
  default     = "arm64"
  nullable    = false

  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "architecture: arm64 or x86_64."
  }
}

variable "memory_size" {
  description = "The memory in megabytes. The function's share of a processor grows with it."
  type        = number
  default     = 512
  nullable    = false

  validation {
    condition     = var.memory_size >= 128 && var.memory_size <= 10240 && floor(var.memory_size) == var.memory_size
    error_message = "memory_size: Lambda allows 128 to 10240 megabytes."
  }
}

variable "function_timeout" {
  description = "The number of seconds for a batch. The queue hides its messages for six times as long."
  type        = number
  default     = 30
  nullable    = false

  validation {
    condition     = var.function_timeout >= 1 && var.function_timeout <= 900 && floor(var.function_timeout) == var.function_timeout
    error_message = "function_timeout: Lambda allows 1 to 900 seconds."
  }
}

variable "environment" {
  description = "The function's environment variables."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for name in keys(var.environment) : can(regex("^[A-Za-z][A-Za-z0-9_]+$", name))])
    error_message = "environment: a name begins with a letter, followed by at least one letter, digit, or _."
  }

  validation {
    condition = length(setintersection(keys(var.environment), [
      "AWS_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_DEFAULT_REGION", "AWS_EXECUTION_ENV", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
      "AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_VERSION", "AWS_LAMBDA_INITIALIZATION_TYPE", "AWS_LAMBDA_LOG_GROUP_NAME",
      "AWS_LAMBDA_LOG_STREAM_NAME", "AWS_LAMBDA_RUNTIME_API", "AWS_REGION", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY",
      "AWS_SESSION_TOKEN", "_HANDLER", "_X_AMZN_TRACE_ID", "LAMBDA_RUNTIME_DIR", "LAMBDA_TASK_ROOT",
    ])) == 0
    error_message = "environment: Lambda itself sets AWS_REGION, the credentials, and AWS_LAMBDA_..., and refuses them here."
  }
}

variable "secret_arns" {
  description = "Secrets that the function can read, for example a connection string. Maps the environment variable for a secret's ARN to that ARN. Neither the state nor the environment contains the secret itself."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for name in keys(var.secret_arns) : can(regex("^[A-Za-z][A-Za-z0-9_]+$", name)) && !contains(keys(var.environment), name)])
    error_message = "secret_arns: a key must be a valid name of an environment variable, and not also in environment."
  }

  validation {
    condition     = alltrue([for arn in values(var.secret_arns) : can(regex("^arn:[^:]+:secretsmanager:[^:]+:[0-9]{12}:secret:.+-[A-Za-z0-9]{6}$", arn))])
    error_message = "secret_arns: the whole ARN, arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-123456, with the six characters that AWS adds. The permission to read needs it."
  }

  validation {
    condition     = length(jsonencode(merge(var.environment, var.secret_arns))) <= 4096
    error_message = "secret_arns: together with environment, they exceed the 4 KB that Lambda allows."
  }
}

variable "table_arn" {
  description = "Your DynamoDB table, or null."
  type        = string
  default     = null

  validation {
    condition     = var.table_arn == null ? true : can(regex("^arn:[^:]+:dynamodb:[^:]+:[0-9]{12}:table/[A-Za-z0-9_.-]{3,255}$", var.table_arn))
    error_message = "table_arn: arn:aws:dynamodb:REGION:ACCOUNT:table/NAME, of the table itself and not of an index or a stream."
  }
}

variable "table_actions" {
  description = "The function's permissions on the table. With the default, it can change and read entities. For put_item, add dynamodb:PutItem."
  type        = list(string)
  default     = ["dynamodb:UpdateItem", "dynamodb:GetItem"]
  nullable    = false

  validation {
    condition     = length(var.table_actions) > 0 && alltrue([for action in var.table_actions : can(regex("^dynamodb:[A-Z][A-Za-z]+$", action))])
    error_message = "table_actions: at least one, with its full name, for example dynamodb:UpdateItem, and without wildcards."
  }
}

variable "index_actions" {
  description = "The function's permissions on the table and its indexes, for example dynamodb:Query."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(setsubtract(var.index_actions, ["dynamodb:Query", "dynamodb:Scan"])) == 0
    error_message = "index_actions: an index allows only dynamodb:Query and dynamodb:Scan."
  }

  validation {
    condition     = length(var.index_actions) == 0 || var.table_arn != null
    error_message = "index_actions: set table_arn too."
  }
}

variable "policy" {
  description = "More permissions of the function, as the JSON of a policy document."
  type        = string
  default     = null

  validation {
    condition     = var.policy == null ? true : can(jsondecode(var.policy).Statement)
    error_message = "policy: the JSON of a policy document, for example from jsonencode or aws_iam_policy_document."
  }
}

variable "permissions_boundary" {
  description = "The ARN of the permissions boundary of the function's role."
  type        = string
  default     = null

  validation {
    condition     = var.permissions_boundary == null ? true : can(regex("^arn:[^:]+:iam::([0-9]{12}|aws):policy/.+$", var.permissions_boundary))
    error_message = "permissions_boundary: arn:aws:iam::ACCOUNT:policy/NAME."
  }
}

variable "layers" {
  description = "The ARNs of layers, with their versions."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for arn in var.layers : can(regex("^arn:[^:]+:lambda:[^:]+:[0-9]{12}:layer:[A-Za-z0-9_-]+:[0-9]+$", arn))])
    error_message = "layers: arn:aws:lambda:REGION:ACCOUNT:layer:NAME:VERSION."
  }

  validation {
    condition     = length(var.layers) <= 5 && length(distinct(var.layers)) == length(var.layers)
    error_message = "layers: Lambda allows five, each once."
  }

  validation {
    condition     = length(var.layers) == 0 || var.image_uri == null
    error_message = "layers: an image can't have layers. Install their content into the image."
  }
}

variable "reserved_concurrency" {
  description = "The number of concurrent executions reserved for the function, which is also its limit. With null, it shares those of the account."
  type        = number
  default     = null

  validation {
    condition     = var.reserved_concurrency == null ? true : var.reserved_concurrency >= 1 && floor(var.reserved_concurrency) == var.reserved_concurrency
    error_message = "reserved_concurrency: 1 or more. To stop the function, set enabled = false. With 0, throttling would use up each message's deliveries."
  }

  validation {
    condition     = var.reserved_concurrency == null || var.event_source != "queue" ? true : var.reserved_concurrency >= var.maximum_concurrency
    error_message = "reserved_concurrency: must be at least maximum_concurrency. Otherwise batches are throttled, which counts as a delivery."
  }
}

variable "tracing" {
  description = "Whether X-Ray traces the function."
  type        = bool
  default     = false
  nullable    = false
}

variable "subnet_ids" {
  description = "The private subnets in which the function runs, for example for MongoDB in a VPC. They need a NAT or VPC endpoints to reach AWS."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for id in var.subnet_ids : can(regex("^subnet-[0-9a-f]+$", id))])
    error_message = "subnet_ids: subnet-..., not ARNs or names."
  }

  validation {
    condition     = length(var.subnet_ids) <= 16 && length(distinct(var.subnet_ids)) == length(var.subnet_ids)
    error_message = "subnet_ids: Lambda allows 16, each once."
  }

  validation {
    condition     = (length(var.subnet_ids) == 0) == (length(var.security_group_ids) == 0)
    error_message = "subnet_ids: set both subnet_ids and security_group_ids, or neither."
  }
}

variable "security_group_ids" {
  description = "Security groups that let the function connect to MongoDB and AWS."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for id in var.security_group_ids : can(regex("^sg-[0-9a-f]+$", id))])
    error_message = "security_group_ids: sg-..., not ARNs or names."
  }

  validation {
    condition     = length(var.security_group_ids) <= 5 && length(distinct(var.security_group_ids)) == length(var.security_group_ids)
    error_message = "security_group_ids: Lambda allows five, each once."
  }
}

variable "kms_key_arn" {
  description = "Your key for the queues, the environment, and the log. With null, AWS's own keys are used. infra/README.md lists the permissions that the key's policy must grant."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null ? true : can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/.+$", var.kms_key_arn))
    error_message = "kms_key_arn: arn:aws:kms:REGION:ACCOUNT:key/ID. An alias doesn't work, because the role's permissions name the key."
  }
}
