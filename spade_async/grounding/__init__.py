"""What the designer is grounded in: a corpus of documents and a memory of environments (step 1)."""
