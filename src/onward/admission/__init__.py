"""Who may call: keys. No I/O."""
