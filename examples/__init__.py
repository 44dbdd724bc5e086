"""Programs to copy from: `shop` is an application, and `demo` (`make demo`) shows it at work."""
