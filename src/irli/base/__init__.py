"""What every room stands on: checks, recipes, files, threads. Nothing here knows an index."""
