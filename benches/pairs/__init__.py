"""What the benches of regret estimation have in common."""
