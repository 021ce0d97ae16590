"""Replies of models: marks and text in, content, reasoning and tool calls out."""
