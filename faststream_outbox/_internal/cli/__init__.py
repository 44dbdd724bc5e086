"""The command line: what `faststream_outbox.cli` runs."""
