"""From rows and labels to an index: the problem, profiles, scaling, routing and assembling."""
