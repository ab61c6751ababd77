"""One cycle of rollouts (design, validate, play, train) driven in two ways, for `rollouts`."""
