"""A Llama inside a framework: what LangChain-like code calls is `invoke`, `stream` and `batch` on some object.

Nothing of such a framework is needed: a class of this size is the whole bridge. Run it: python examples/chat_model.py
"""

import pyspec

TEMPLATE = """\
{%- for message in messages -%}
{{ '# ' ~ message.role ~ ': ' ~ message.content ~ '\\n' }}
{%- endfor -%}
"""


class ChatModel:
    """Messages in, a message out; options given here hold for every call, those of a call come before them."""

    def __init__(self, llm, **options):
        self.llm = llm
        self.options = options

    def invoke(self, messages, stop=None, **options):
        """The answer's text."""
        return self._answer(messages, stop, options).message["content"]

    def stream(self, messages, stop=None, **options):
        """The answer's text, piece by piece."""
        chunks = self.llm.chat_stream(self._messages(messages), stop=stop, **{**self.options, **options})
        yield from (chunk for chunk in chunks if isinstance(chunk, str))

    def batch(self, inputs, **options):
        """The texts of several answers, one after the other."""
        return [self.invoke(messages, **options) for messages in inputs]

    __call__ = invoke

    def __or__(self, following):
        """`model | parser`: what comes out goes on to `following`."""
        return lambda messages: following(self.invoke(messages))

    def _answer(self, messages, stop, options):
        return self.llm.chat(self._messages(messages), stop=stop, **{**self.options, **options})

    @staticmethod
    def _messages(given):
        """A text is a user's message; pairs are roles and texts; dicts and objects with `type` and `content` pass."""
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
        roles = {"human": "user", "ai": "assistant"}
        messages = []
        for one in given:
            if isinstance(one, tuple):
                one = {"role": one[0], "content": one[1]}
            elif not isinstance(one, dict):
                one = {"role": one.type, "content": one.content}
            messages.append({**one, "role": roles.get(one["role"], one["role"])})
        return messages


def main():
    """Ask once, and follow another answer as it comes."""
    with pyspec.Llama(pyspec.models.tiny_target(), n_ctx=1024, budget="counts") as llm:
        model = ChatModel(llm, template=TEMPLATE, max_tokens=24)
        print(model.invoke([("system", "Write Python."), ("human", "double x")]))
        for piece in model.stream("double x"):
            print(piece, end="", flush=True)
        print()


if __name__ == "__main__":
    main()
