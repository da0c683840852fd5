"""Training of the two tiny LFM2 models that ship with the package.

Run it as `python -m scripts.train_tiny COMMAND` from the repository's root.
The README beside this file has the exact commands and what they gave.
"""
