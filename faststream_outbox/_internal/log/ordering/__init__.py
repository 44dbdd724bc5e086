"""The one order of the log: the sequencer makes ticks, the timeline reads them."""
