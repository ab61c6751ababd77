"""The role that writes environments: prompt, parsing, hint and pay."""
