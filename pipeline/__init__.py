"""Sample, grade, assemble, update, record: what every stage is made of."""
