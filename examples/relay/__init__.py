"""A shop whose orders reach NATS, and nothing but wheels to run it."""
