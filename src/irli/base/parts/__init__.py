"""An index in several parts: their folders, the calls of all of them, and what they answer."""
