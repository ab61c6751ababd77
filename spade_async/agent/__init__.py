"""The role that acts in environments: prompt, action and episode."""
