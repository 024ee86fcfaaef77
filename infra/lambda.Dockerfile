# The function as a container image. From the top of a checkout:
#
#   docker build --file infra/lambda.Dockerfile --platform linux/arm64 --provenance=false --tag order-history .
# Push it to ECR. In function.yaml, set PackageType: Image and ImageUri instead of CodeUri, Handler, and Runtime. The base image includes
# boto3. For your own handler, change the lines marked "yours".
# AWS patches this image under its tag. For repeatable builds, pass its digest: --build-arg BASE=public.ecr.aws/lambda/python:3.13@sha256:...
ARG BASE=public.ecr.aws/lambda/python:3.13

FROM ${BASE} AS build
WORKDIR /build
COPY pyproject.toml LICENSE ./
COPY infra/package.py infra/package.py
COPY src src
# yours
COPY examples/order_history examples/order_history
# yours: the folder and its requirements, for example --install "pymongo>=4.13".
# The wheels are for the requested platform, because this command runs on it. All modules are compiled to bytecode here, because Lambda
# can't store it: without it, each cold start takes more than twice as long to import onewrite.
RUN python infra/package.py --architecture native --output /package examples/order_history

FROM ${BASE}
COPY --from=build /package /var/task
# yours
CMD ["order_history.feed.handler"]
