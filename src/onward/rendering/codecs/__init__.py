"""Readers of tool calls: from what a model wrote between two marks to names and arguments."""
