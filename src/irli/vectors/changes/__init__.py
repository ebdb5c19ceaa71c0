"""Items that are added, replaced and removed after a fit."""
