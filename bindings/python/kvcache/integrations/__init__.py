"""Frameworks on libkvcache. Each module needs its framework: `pip install kvcache[transformers]`."""
