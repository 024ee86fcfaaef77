# A standard queue whose function counts goods in a MongoDB that is reached from a VPC only.
#
#   python3.13 infra/package.py --install "pymongo>=4.13" infra/examples/mongodb/stock.py
#   terraform -chdir=infra/examples/mongodb init
#   terraform -chdir=infra/examples/mongodb apply -var vpc_id=vpc-... -var 'subnet_ids=["subnet-..."]' -var mongodb_cidr=10.0.8.0/24
#   aws secretsmanager put-secret-value --secret-string "mongodb://..." \
#     --secret-id "$(terraform -chdir=infra/examples/mongodb output -raw secret_arn)"

module "stock" {
  source = "../../terraform"

  name               = var.name
  package            = var.package
  handler            = "stock.handler"
  secret_arns        = { MONGODB_SECRET_ARN = aws_secretsmanager_secret.mongodb.arn }
  subnet_ids         = var.subnet_ids
  security_group_ids = [aws_security_group.function.id]
  alarm_topic_arns   = var.alarm_topic_arns
}

# Its value is put there by hand, or by what makes the database: so it is in no state and in no plan. After a destroy it can be had
# back for 30 days. Its name is taken for so long, so each one has another.
resource "aws_secretsmanager_secret" "mongodb" {
  name_prefix = "${var.name}-mongodb-"
  description = "MongoDB's connection string."
}

# The function takes no connections. It makes them to MongoDB, and to AWS for the secret.
resource "aws_security_group" "function" {
  name        = "${var.name}-function"
  description = "From the function to MongoDB and to Secrets Manager."
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_egress_rule" "mongodb" {
  security_group_id = aws_security_group.function.id
  description       = "MongoDB"
  cidr_ipv4         = var.mongodb_cidr
  ip_protocol       = "tcp"
  from_port         = var.mongodb_ports[0]
  to_port           = var.mongodb_ports[1]
}

resource "aws_vpc_security_group_egress_rule" "aws" {
  security_group_id = aws_security_group.function.id
  description       = "Secrets Manager"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

# Without a NAT this is the only way from the subnets to Secrets Manager.
data "aws_region" "current" {}

resource "aws_vpc_endpoint" "secrets" {
  count = var.secrets_endpoint ? 1 : 0

  vpc_id              = var.vpc_id
  service_name        = "com.amazonaws.${data.aws_region.current.id}.secretsmanager"
  vpc_endpoint_type   = "Interface"
  private_dns_enabled = true
  subnet_ids          = var.subnet_ids
  security_group_ids  = [aws_security_group.endpoint[0].id]
}

resource "aws_security_group" "endpoint" {
  count = var.secrets_endpoint ? 1 : 0

  name        = "${var.name}-endpoint"
  description = "From the function to Secrets Manager."
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "endpoint" {
  count = var.secrets_endpoint ? 1 : 0

  security_group_id            = aws_security_group.endpoint[0].id
  description                  = "The function"
  referenced_security_group_id = aws_security_group.function.id
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
}

output "secret_arn" {
  description = "The secret for the connection string."
  value       = aws_secretsmanager_secret.mongodb.arn
}

output "stock" {
  description = "The queue, its dead-letter queue, the function, and its role."
  value       = module.stock
}
