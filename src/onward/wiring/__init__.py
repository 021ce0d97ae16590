"""The composition root: configuration, processes, and the one place that knows classes."""
