"""Programs to copy from: `shop` is an application, `demo` (`make demo`) shows it at work, `shards` is two databases."""
