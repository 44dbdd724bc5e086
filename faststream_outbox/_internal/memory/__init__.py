"""The engines' tables in memory: the double that tests of an application run on.

`queues` and `log` are the tables, `transaction` is what a session changed and has not committed, `client` is the queue
engine's own client on them. The engine's loops and decisions are not written again: they run here as they do on
PostgreSQL, and only their statements are answered by Python. Knows neither FastStream nor the broker;
`faststream_outbox.testing` puts it in the place of a broker's database.
"""
