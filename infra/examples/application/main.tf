# Two services, each with what it writes and what it publishes.
#
#   orders     a function on DynamoDB. A relay publishes its events to a topic that has two consumers
#   customers  the one consumer, a function on DynamoDB
#   billing    the other one, a worker on MongoDB in containers, which calls a provider. A relay publishes its events to the orders' queue
#
#   python3.13 infra/package.py infra/examples/application/orders.py infra/examples/application/customers.py infra/examples/relay/relay.py
#   docker build --file infra/Dockerfile --build-arg EXTRAS=aws,cli,mongodb --build-arg HANDLERS=infra/examples/application --tag ... .
#   terraform -chdir=infra/examples/application init
#   terraform -chdir=infra/examples/application apply

# ---------------------------------------------------------------- orders

module "relay" {
  source = "../relay"

  name                = "${var.name}-orders"
  package             = var.package
  alarm_topic_arns    = var.alarm_topic_arns
  deletion_protection = var.deletion_protection
}

module "orders" {
  source = "../../terraform"

  name             = "${var.name}-place"
  package          = var.package
  handler          = "orders.handler"
  environment      = { ORDERS_TABLE = module.relay.table_name }
  table_arn        = module.relay.table_arn
  table_actions    = ["dynamodb:UpdateItem"]
  alarm_topic_arns = var.alarm_topic_arns
}

# ---------------------------------------------------------------- what they publish goes to two queues

resource "aws_sns_topic_subscription" "this" {
  for_each = { customers = module.customers.queue_arn, billing = module.billing_queue.queue_arn }

  topic_arn            = module.relay.topic_arn
  protocol             = "sqs"
  endpoint             = each.value
  raw_message_delivery = true
}

# ---------------------------------------------------------------- customers

module "customers" {
  source = "../../terraform"

  name             = "${var.name}-customers"
  package          = var.package
  handler          = "customers.handler"
  fifo             = true
  sns_topic_arns   = [module.relay.topic_arn]
  environment      = { CUSTOMERS_TABLE = aws_dynamodb_table.customers.name }
  table_arn        = aws_dynamodb_table.customers.arn
  table_actions    = ["dynamodb:UpdateItem"]
  alarm_topic_arns = var.alarm_topic_arns
}

resource "aws_dynamodb_table" "customers" {
  name                        = "${var.name}-customers"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "customer"
  deletion_protection_enabled = var.deletion_protection

  attribute {
    name = "customer"
    type = "S"
  }

  point_in_time_recovery {
    enabled = true
  }
}

# ---------------------------------------------------------------- billing

module "billing_queue" {
  source = "../../terraform"

  name             = "${var.name}-billing"
  function         = false
  fifo             = true
  sns_topic_arns   = [module.relay.topic_arn]
  alarm_topic_arns = var.alarm_topic_arns
}

module "billing" {
  source = "../../service"

  name               = "${var.name}-billing"
  image              = var.image
  worker             = "billing:handler"
  queue_arn          = module.billing_queue.queue_arn
  environment        = { PROVIDER_URL = var.provider_url }
  secret_arns        = { MONGODB_SECRET_ARN = aws_secretsmanager_secret.mongodb.arn }
  cluster_arn        = var.cluster_arn
  subnet_ids         = var.subnet_ids
  security_group_ids = var.security_group_ids
  alarm_topic_arns   = var.alarm_topic_arns
}

module "billing_relay" {
  source = "../../service"

  name               = "${var.name}-billing-relay"
  image              = var.image
  relay              = "billing:relay"
  environment        = { ORDERS_QUEUE_URL = module.orders.queue_url }
  secret_arns        = { MONGODB_SECRET_ARN = aws_secretsmanager_secret.mongodb.arn }
  policy             = data.aws_iam_policy_document.billing_relay.json
  cluster_arn        = var.cluster_arn
  subnet_ids         = var.subnet_ids
  security_group_ids = var.security_group_ids
  alarm_topic_arns   = var.alarm_topic_arns
}

data "aws_iam_policy_document" "billing_relay" {
  statement {
    actions   = ["sqs:SendMessage"]
    resources = [module.orders.queue_arn]
  }
}

# Its value, mongodb://..., is put there by hand, or by what makes the database: so it is in no state and in no plan.
resource "aws_secretsmanager_secret" "mongodb" {
  name_prefix = "${var.name}-mongodb-"
  description = "MongoDB's connection string."
}

output "orders" {
  description = "The queue for PlaceOrder, its dead-letter queue, the function, and its role."
  value       = module.orders
}

output "customers" {
  description = "The customers' queue, its dead-letter queue, the function, and its role."
  value       = module.customers
}

output "relay" {
  description = "The relay's function, its role, and its dead-letter queue."
  value       = module.relay.relay
}

output "billing_queue" {
  description = "The billing service's queue and its dead-letter queue."
  value       = module.billing_queue
}

output "billing" {
  description = "The billing service, its role, and its log."
  value       = module.billing
}

output "billing_relay" {
  description = "The service that publishes payments, its role, and its log."
  value       = module.billing_relay
}

output "secret_arn" {
  description = "The secret for the connection string."
  value       = aws_secretsmanager_secret.mongodb.arn
}
