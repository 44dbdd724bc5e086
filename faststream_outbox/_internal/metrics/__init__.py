"""What the engines do, as metrics: the series that there are, and who feeds them."""
