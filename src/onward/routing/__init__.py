"""The catalog of models and which deployment answers. No I/O."""
