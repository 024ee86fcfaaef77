output "function_name" {
  description = "The function, or null without one."
  value       = one(aws_lambda_function.this[*].function_name)
}

output "function_arn" {
  description = "The ARN of the function."
  value       = one(aws_lambda_function.this[*].arn)
}

output "alias_name" {
  description = "The function's alias. The version that it names processes the messages."
  value       = one(aws_lambda_alias.live[*].name)
}

output "alias_arn" {
  description = "The ARN of the alias. Use it to invoke the function."
  value       = one(aws_lambda_alias.live[*].arn)
}

output "role_name" {
  description = "The role of the function's code."
  value       = one(aws_iam_role.function[*].name)
}

output "role_arn" {
  description = "The ARN of that role, for your own policies."
  value       = one(aws_iam_role.function[*].arn)
}

output "queue_name" {
  description = "The queue, or null if the source is a stream."
  value       = one(aws_sqs_queue.events[*].name)
}

output "queue_arn" {
  description = "The ARN of the queue."
  value       = one(aws_sqs_queue.events[*].arn)
}

output "queue_url" {
  description = "The URL of the queue to send messages to. On a FIFO queue, the message group is the messages' source."
  value       = one(aws_sqs_queue.events[*].url)
}

output "dead_letters_name" {
  description = "The dead-letter queue. For a stream, it describes the records that were given up."
  value       = aws_sqs_queue.dead_letters.name
}

output "dead_letters_arn" {
  description = "The ARN of the dead-letter queue."
  value       = aws_sqs_queue.dead_letters.arn
}

output "dead_letters_url" {
  description = "The URL of the dead-letter queue, to redrive from."
  value       = aws_sqs_queue.dead_letters.url
}

output "log_group_name" {
  description = "The log group of the function."
  value       = one(aws_cloudwatch_log_group.this[*].name)
}
