"""Messages that wait for one group: blocked keys, and what operators do with parked messages."""
