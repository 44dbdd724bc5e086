"""The commands: each asks or changes through the library's own API, and leaves the showing to `views`."""
