"""The HTTP edge: routes, limits on what a connection may cost, metrics, the request log."""
