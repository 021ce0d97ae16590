"""The pipeline of a served request: prompts in, deltas out."""
