"""Problems to graded rollouts: prompt, sample, grade, collect, prefetch."""
