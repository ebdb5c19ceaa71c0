"""irli inside other people's programs: a backend for Annif."""
