"""Relay: messages of queues and topics go on to Kafka, RabbitMQ, NATS, Redis, SQS or whatever has a `Transport`."""
