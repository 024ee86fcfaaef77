# The function as a container image. From the top of a checkout:
#
#   docker build --file infra/lambda.Dockerfile --platform linux/arm64 --provenance=false --tag order-history .
#
# Push it to ECR, and give the Terraform module its image_uri and architecture. boto3 is in the base image.
# For a handler of your own change the lines marked "yours".
#
# AWS mends this image under its tag. For builds that can be repeated give its digest: --build-arg BASE=public.ecr.aws/lambda/python:3.13@sha256:...
ARG BASE=public.ecr.aws/lambda/python:3.13

FROM ${BASE} AS build
WORKDIR /build
COPY pyproject.toml LICENSE ./
COPY infra/package.py infra/package.py
COPY src src
# yours
COPY examples/order_history examples/order_history
# yours: the folder, and what it needs, as --install "pymongo>=4.13".
# The wheels are those of the platform that is asked for, since this runs on it.
RUN python infra/package.py --architecture native --output /package examples/order_history

FROM ${BASE}
COPY --from=build /package /var/task
# yours
CMD ["order_history.feed.handler"]
