"""Speculative decoding for GGUF models: faster generation that does not change what they say.

`Llama` is the facade, `Session` a conversation, `Engine` serves many requests; `models` names small models;
`speculators` has what drafts; `errors` has what can go wrong.
"""

import logging
import os.path
from importlib import import_module
from typing import Any

try:
    from pyspec import _core
except ImportError as error:
    if isinstance(error, ImportError) and "_core" in str(error) and "partially initialized" in str(error):
        where = os.path.dirname(os.path.abspath(__file__))
        raise ImportError(
            f"pyspec was found in its source folder, {where}, which holds no compiled extension; start Python from "
            "another folder, or install it in place: pip install -e . --no-build-isolation"
        ) from error
    raise
from pyspec import errors, models
from pyspec.chat import ChatCompletion
from pyspec.chat.template import ChatTemplate
from pyspec.completion import Completion
from pyspec.config import SamplingOptions
from pyspec.constraint import Choice, Json, JsonSchema, Lark, Regex
from pyspec.engine import Engine
from pyspec.engine.ticket import Ticket
from pyspec.llm import Llama
from pyspec.logprobs import TokenLogprob
from pyspec.lossless import Comparison, check_lossless
from pyspec.progress import PromptBar
from pyspec.session import Session
from pyspec.stats import Stats, Timings

__all__ = [
    "ChatCompletion",
    "ChatTemplate",
    "Choice",
    "Comparison",
    "Completion",
    "Engine",
    "Json",
    "JsonSchema",
    "Lark",
    "Llama",
    "PromptBar",
    "Regex",
    "SamplingOptions",
    "Session",
    "Stats",
    "Ticket",
    "Timings",
    "TokenLogprob",
    "__version__",
    "check_lossless",
    "errors",
    "models",
]

logging.getLogger("pyspec").addHandler(logging.NullHandler())

# A portable build has its backends, one per kind of CPU, in a folder beside the extension.
_backends = os.path.join(os.path.dirname(_core.__file__), "lib")
if os.path.isdir(_backends):
    _core.load_backends(_backends)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # a tenth of the import's time, and seldom asked for

        return version("pyspec-llama")
    if name in ("bench", "testing"):  # seldom needed, too
        return import_module(f"pyspec.{name}")
    raise AttributeError(f"module 'pyspec' has no attribute {name!r}")
