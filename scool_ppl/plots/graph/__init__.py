"""The picture of a graph: where clients stand, what is drawn, names where they fit, and a legend."""
