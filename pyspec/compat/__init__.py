"""Code written for llama-cpp-python, run by pyspec: `from pyspec.compat import Llama` in the place of `llama_cpp`.

Owns the names, arguments and OpenAI-shaped results of that library's `Llama`; docs/chat.md has a table of what differs.
Leaves generating to `pyspec.Llama`, which is the attribute `llm` of each object.
"""

from pyspec.compat.grammar import LlamaGrammar
from pyspec.compat.llama import Llama
from pyspec.compat.options import LlamaPromptLookupDecoding

__all__ = ["Llama", "LlamaGrammar", "LlamaPromptLookupDecoding"]
