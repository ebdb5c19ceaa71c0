"""How soon a fresh process is ready."""
