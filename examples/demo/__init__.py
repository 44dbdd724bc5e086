"""The shop at work, with everything going wrong that may: `python -m examples.demo`."""
