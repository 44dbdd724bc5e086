"""Everything that may change tomorrow. What applications import stands above, in `faststream_outbox`."""
