"""What scripts/build_shape_models.py writes: true shapes of hybrid models, their tensors, random weights for them.

`shapes` owns the numbers and their sources, `tensors` the GGUF names and metadata, `weights` the bytes.
"""
