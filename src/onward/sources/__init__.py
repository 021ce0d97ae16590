"""Where model files come from: a path, a package, a model hub."""
