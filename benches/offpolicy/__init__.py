"""Small worlds in which everything can be enumerated, to see what each correction rule does."""
