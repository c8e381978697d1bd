"""Learning from a teacher's distributions: on the student's own answers, or on written ones."""
