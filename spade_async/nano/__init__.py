"""The CPU model: a grammar of small environments, a tokenizer, a warm start of both roles.

Nothing outside knows it: the core reaches it by the name of its domain module alone.
"""
