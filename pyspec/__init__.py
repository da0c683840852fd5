"""Speculative decoding for GGUF models: faster generation that does not change what they say.

`Llama` is the facade; `models` names small models; `speculators` has what drafts; `errors` has what can go wrong.
"""

import logging
from importlib.metadata import version

from pyspec import errors, models
from pyspec.completion import Completion
from pyspec.config import SamplingOptions
from pyspec.llm import Llama
from pyspec.stats import Stats, Timings

__all__ = ["Completion", "Llama", "SamplingOptions", "Stats", "Timings", "__version__", "errors", "models"]

__version__ = version("pyspec-llama")

logging.getLogger("pyspec").addHandler(logging.NullHandler())
