"""Building in shards: the steps of a build, where they run, and where their files lie."""
