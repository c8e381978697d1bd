"""Mathematical answers: read into a tree, weighed before they are worked out, compared exactly."""
