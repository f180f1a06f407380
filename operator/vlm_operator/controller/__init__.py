"""kopf wiring and nothing else: settings, handlers, the queue between them, and reconcile."""
