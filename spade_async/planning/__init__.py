"""What a configuration will take, worked out before anything runs: memory, rates, age, disk."""
