output "function_name" {
  value = one(aws_lambda_function.this[*].function_name)
}

output "function_arn" {
  value = one(aws_lambda_function.this[*].arn)
}

output "role_name" {
  value = one(aws_iam_role.function[*].name)
}

output "role_arn" {
  value = one(aws_iam_role.function[*].arn)
}

output "queue_name" {
  description = "Null if the source is a stream."
  value       = one(aws_sqs_queue.events[*].name)
}

output "queue_arn" {
  value = one(aws_sqs_queue.events[*].arn)
}

output "queue_url" {
  description = "Where the messages go. On a FIFO queue the message group is the source that numbers them."
  value       = one(aws_sqs_queue.events[*].url)
}

output "dead_letters_name" {
  value = aws_sqs_queue.dead_letters.name
}

output "dead_letters_arn" {
  value = aws_sqs_queue.dead_letters.arn
}

output "dead_letters_url" {
  value = aws_sqs_queue.dead_letters.url
}

output "log_group_name" {
  value = one(aws_cloudwatch_log_group.this[*].name)
}
