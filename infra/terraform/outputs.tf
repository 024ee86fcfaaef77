output "table_name" {
  value = aws_dynamodb_table.this.name
}

output "queue_url" {
  description = "Where the events go. On a FIFO queue the message group is the aggregate, as Order-o-1."
  value       = aws_sqs_queue.events.url
}

output "dead_letters_url" {
  value = aws_sqs_queue.dead_letters.url
}

output "function_name" {
  value = aws_lambda_function.this.function_name
}
