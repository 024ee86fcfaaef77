# examples/order_history on AWS: both services publish to one queue, whose function keeps the view in a table.
#
#   python3.13 infra/package.py
#   terraform -chdir=infra/examples/order-history init
#   terraform -chdir=infra/examples/order-history apply

module "feed" {
  source = "../../terraform"

  name             = var.name
  package          = var.package
  handler          = "order_history.feed.handler"
  environment      = { ORDERS_TABLE = aws_dynamodb_table.orders.name }
  table_arn        = aws_dynamodb_table.orders.arn
  index_actions    = ["dynamodb:Query"]
  fifo             = var.fifo
  alarm_topic_arns = var.alarm_topic_arns
}

resource "aws_dynamodb_table" "orders" {
  name                        = var.name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "orderId"
  deletion_protection_enabled = var.deletion_protection

  attribute {
    name = "orderId"
    type = "S"
  }

  attribute {
    name = "consumerId"
    type = "S"
  }

  attribute {
    name = "creationDate"
    type = "S"
  }

  global_secondary_index {
    name      = "consumer-creationDate"
    hash_key  = "consumerId"
    range_key = "creationDate"
    # What the query shows, and not the ledger.
    projection_type    = "INCLUDE"
    non_key_attributes = ["restaurant", "lineItems", "status", "deliveryStatus", "steps"]
  }

  point_in_time_recovery {
    enabled = true
  }

  # Removes an item whose `expiresAt` (epoch seconds) is past; one without it stays, and the example sets none.
  # The item's ledger goes with it: a message that is delivered again after that creates the item anew. So let an
  # entity live on for longer than any copy of its messages can come.
  ttl {
    attribute_name = "expiresAt"
    enabled        = true
  }
}

output "table_name" {
  description = "The table."
  value       = aws_dynamodb_table.orders.name
}

output "feed" {
  description = "The queue, its dead-letter queue, the function, and its role."
  value       = module.feed
}
