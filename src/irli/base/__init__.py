"""The foundation of all other packages: checks, recipes, files, ids, memory, threads."""
