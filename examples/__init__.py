"""Programs that show the library at work; `make demo` runs the first of them."""
