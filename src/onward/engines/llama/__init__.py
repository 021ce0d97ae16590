"""The embedded engine: llama.cpp in a process of its own, with a scheduler of ours."""
