"""`python -m faststream_outbox`: the command line, where its script is not on the path."""

from faststream_outbox.cli import main

if __name__ == "__main__":
    main()
