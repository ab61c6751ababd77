"""vLLM behind the `Engine` protocol: real models on GPUs, and on a CPU through its CPU build.

`engine` is the front, `core` one life of vLLM's processes, `stream` one request, `staged` a weight
set on its way in, `plugin` what vLLM loads into each of its processes. Nothing is imported here:
the plugin is loaded by every vLLM of this Python, ours or not.
"""
