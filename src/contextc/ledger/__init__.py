"""What a model has been shown: items, the rows they make, and the standing of a channel."""
