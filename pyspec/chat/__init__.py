"""Chat by a model's own template.

`template` renders it in a sandbox (`templating/`), `messages` checks what goes in, `tool_calls` finds what comes out,
and `answer` has a `Llama` generate in between.
"""

from pyspec.chat.answer import ChatCompletion, ChatPrompt, chat, chat_prompt, chat_stream
from pyspec.chat.template import ChatTemplate

__all__ = ["ChatCompletion", "ChatPrompt", "ChatTemplate", "chat", "chat_prompt", "chat_stream"]
