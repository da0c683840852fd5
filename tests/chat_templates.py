"""Chat templates in the styles that models use, in our own words."""

# ruff: noqa: E501 - templates on one line

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>' ~ '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""

CHATML_TOOLS = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] ~ '\\n\\n' }}
    {%- endif %}
    {{- 'Tools:' }}
    {%- for tool in tools %}
        {{- '\\n' ~ tool|tojson }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- elif not (tools and loop.first and message.role == 'system') %}
        {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n' ~ {'name': call.function.name, 'arguments': call.function.arguments}|tojson }}
            {{- '\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""

LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}
{%- set system = '' %}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: ' + date_string + '\\n\\n' + system + '<|eot_id|>' }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""

MISTRAL = """\
{{- bos_token }}
{%- set ns = namespace(index=0) %}
{%- for message in messages %}
    {%- if (message.role == 'user') != (ns.index % 2 == 0) %}
        {{- raise_exception('roles must alternate: user, assistant, user ...; got ' ~ message.role) }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' ~ message.content ~ ' [/INST]' }}
    {%- elif message.role == 'assistant' %}
        {%- generation %}{{- ' ' ~ message.content ~ eos_token }}{%- endgeneration %}
    {%- else %}
        {{- raise_exception('only user and assistant speak here') }}
    {%- endif %}
{%- endfor %}
"""

GEMMA = """\
{{ bos_token }}
{%- macro turn(role, content) %}{{ '<start_of_turn>' + role + '\\n' + content | trim + '<end_of_turn>\\n' }}{% endmacro %}
{%- if messages[0].role == 'system' %}{%- set first = messages[0].content + '\\n\\n' %}{%- set said = messages[1:] %}
{%- else %}{%- set first = '' %}{%- set said = messages %}{%- endif %}
{%- for message in said %}
    {%- if loop.index0 % 2 != (1 if message.role == 'assistant' else 0) %}
        {{- raise_exception('user and assistant take turns') }}
    {%- endif %}
    {{- turn('model' if message.role == 'assistant' else message.role, (first if loop.first else '') + message.content) }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{%- endif %}
"""

# Arguments of calls as JSON text: a template that adds them to a text, and one that only prints them.
TEXT_ARGUMENTS = """\
{%- for message in messages %}
    {%- for call in message.tool_calls or [] %}{{- 'CALL ' + call.function.name + ' ' + call.function.arguments }}{%- endfor %}
{%- endfor %}
"""
PRINTED_ARGUMENTS = """\
{%- for message in messages %}
    {%- for call in message.tool_calls or [] %}CALL {{ call.function.name }} {{ call.function.arguments }}{%- endfor %}
{%- endfor %}
"""

# Pieces of the language: source, and the text of it.
LANGUAGE = [
    ("{{ {'a': '<é&\"\\''}|tojson }}", '{"a": "<é&\\"\'"}'),
    ("{{ [1, {'b': none}]|tojson(indent=2) }}", '[\n  1,\n  {\n    "b": null\n  }\n]'),
    ("{{ {'b': 1, 'a': 2}|tojson(separators=(',', ':'), sort_keys=true) }}", '{"a":2,"b":1}'),
    ("{{ '{\"a\": [1, 2]}'|from_json }}", "{'a': [1, 2]}"),
    ("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}", "0134"),
    ("{% for i in [] %}x{% else %}none{% endfor %}", "none"),
    ("{% for x in [3, 1, 2] if x > 1 %}{{ loop.index }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}", "1:3,2:2"),
    ("{% for x in [[1, [2]], [3]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", "123"),
    ("{% for x in 'ab' %}{{ loop.cycle('-', '+') }}{{ x }}{{ loop.changed(1) }}{% endfor %}", "-aTrue+bFalse"),
    ("{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 3, 4, c=5) }}", "13(4,){'c': 5}"),
    ("{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}", "<1>"),
    ("{% set ns = namespace(a=1, b=none) %}{% set ns.a = 2 %}{{ ns.a }}{{ ns.b is none }}{{ ns.c is defined }}", "2TrueFalse"),
    ("{% set x %}a{{ 1 }}{% endset %}{{ x }}{% filter upper %}b{% endfilter %}{% with y = 2 %}{{ y }}{% endwith %}", "a1B2"),
    ("{% generation %}{{ 1 }}{% endgeneration %}", "1"),
    ("{{ 'a-b-c'.split('-')[-1] }}{{ 'abc'[::-1] }}{{ [1, 2, 3][1:] }}{{ 'abc'[:-1] }}", "ccba[2, 3]ab"),
    ("{{ 1 < 2 < 3 }}{{ 1 < 2 > 3 }}{{ 'a' in 'abc' }}{{ 1 not in [2] }}{{ 'k' in {'k': 1} }}", "TrueFalseTrueTrueTrue"),
    ("{{ '%s has %d of %.2f' % ('a', 3, 1.5) }}{{ '{} {x:>3}'.format('b', x=1) }}", "a has 3 of 1.50b   1"),
    ("{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 10 }}{{ -3 + 1 }}{{ 1 / 2 }}{{ [1] + [2] }}{{ 'a' * 3 }}", "331024-20.5[1, 2]aaa"),
    ("{{ missing }}{{ missing|default('d') }}{{ missing is defined }}{{ messages.missing is undefined }}", "dFalseTrue"),
    ("{{ [{'a': 2}, {'a': 1}]|map(attribute='a')|sort|join(',') }}{{ [1, 2]|sum }}{{ [1, 1]|unique|list }}", "1,23[1]"),
    ("{{ [{'a': 2}, {'a': 1}]|selectattr('a', 'equalto', 1)|list|length }}{{ [1, 0]|reject|list }}", "1[0]"),
    ("{{ {'b': 1, 'a': 2}|dictsort }}{{ {'a': 1}|items|list }}{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "[('a', 2), ('b', 1)][('a', 1)]a1"),
    ("{{ 'a\nb'|indent(2) }}{{ ' x '|trim }}{{ 'aXb'|replace('X', '-') }}{{ 'ab'|center(4) }}|", "a\n  bxa-b ab |"),
    ("{{ '3'|int + 1 }}{{ 'x'|int(7) }}{{ '2.5'|float }}{{ 2.567|round(1) }}{{ [3, 1]|min }}{{ [1, 2]|reverse|list }}", "472.52.61[2, 1]"),
    ("{{ {'a': 1}.get('b', 2) }}{{ {'a': {'b': 3}}.a.b }}{{ {'items': 4}['items'] }}{{ {'a': 1}.keys() }}", "234['a']"),
    ("{{ 3 is odd }}{{ 'x' is string }}{{ {} is mapping }}{{ [] is sequence }}{{ true is boolean }}{{ 1.5 is number }}", "True" * 6),
    ("a\n{% if true %}\n  b\n{% endif %}\nc\n", "a\n  b\nc"),
]  # fmt: skip
