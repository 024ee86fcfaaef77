output "service_name" {
  description = "The ECS service."
  value       = aws_ecs_service.this.name
}

output "task_definition_arn" {
  description = "The task definition. Each change creates a new revision."
  value       = aws_ecs_task_definition.this.arn
}

output "role_name" {
  description = "The role of the code in the containers."
  value       = aws_iam_role.task.name
}

output "role_arn" {
  description = "The ARN of that role, for your own policies."
  value       = aws_iam_role.task.arn
}

output "log_group_name" {
  description = "The log group of the containers."
  value       = aws_cloudwatch_log_group.this.name
}
