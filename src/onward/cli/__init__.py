"""The command line: a thin edge. Commands are imported when they are run."""
