"""Chat templates that want more than they may, by what they try. All are of our own making.

`STOPPED` must end with an error, `HARMLESS` may end either way, but tell nothing.
"""

# ruff: noqa: E501 - templates on one line

_DOUBLES = "{% set ns = namespace(x=['lol'], y=['lol']) %}{% for i in range(60) %}"
_LISTS = _DOUBLES + "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
_TUPLES = _DOUBLES + "{% set ns.x = (ns.x, ns.x) %}{% endfor %}"
_GROWS = "{% set ns = namespace(x='a') %}{% for i in range(60) %}"
_KEEPS = "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% for j in range(100000) %}"
_LONG = "{% set a = 'a' * 900000 %}{% set b = 'a' * 900000 %}{% for i in range(100000) %}"
_MANY = "{% set a = range(100000)|list %}{% for i in range(100000) %}"
_END = "{% endfor %}"

TIME = {
    "loops in a loop": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "loops that print": "{% for i in range(9999) %}{% for j in range(9999) %}{{ i }}{% endfor %}{% endfor %}",
    "a loop whose test drops all": "{% for i in range(9999) %}{% for j in range(9999) if false %}{% endfor %}{% endfor %}",
    "a range of all numbers": "{{ range(10**12)|length }}",
    "ranges made lists": "{% for i in range(1000) %}{% set x = range(100000)|list %}{% endfor %}",
    "a macro that calls itself": "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "macros that call each other": "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a tree of macros": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "a caller that calls itself": "{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}{{ n() }}{{ n() }}"
    "{% endcall %}{% endmacro %}{{ n() }}",
    "a recursive loop": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "a pipe of maps": "{% for i in range(99999) %}{{ range(99999)|map('string')|map('upper')|list|length }}{% endfor %}",
    "selecting": "{% for i in range(99999) %}{{ range(99999)|select('odd')|list|length }}{% endfor %}",
    "searching backward": "{% set a = 'a' * 400000 %}{% set b = 'b' ~ 'a' * 200000 %}{{ a.rfind(b) }}",
    "splitting backward": "{% set a = 'a' * 400000 %}{% set b = 'b' ~ 'a' * 200000 %}{{ a.rsplit(b) }}",
    "searching in short texts": "{% set a = 'a' * 2400 %}{% set b = 'a' * 1200 ~ 'b' %}{% for i in range(100000) %}"
    "{{ b in a }}{{ a.find(b) }}{{ a.count(b) }}{{ a.replace(b, '') == a }}{% endfor %}",
    "stripping many characters": "{% set a = 'a' * 900000 %}{% set b = 'b' * 900000 ~ 'a' %}{{ a.strip(b) }}{{ a|trim(b) }}",
    "comparing long texts": _LONG + "{{ a == b }}" + _END,
    "upper case again and again": _LONG + "{% set c = a|upper %}{% set d = a.lower() %}" + _END,
    "slices again and again": _LONG + "{% set c = a[1:] %}" + _END,
    "looking up in a long list": _MANY + "{{ -1 in a }}" + _END,
    "looking up in a range": "{% for i in range(100000) %}{{ 0.5 in range(100000) }}{% endfor %}",
    "finding in a long list": _MANY + "{{ a.index(99999) }}{{ a.count(1) }}" + _END,
    "sorting again and again": _MANY + "{% set b = a|sort(reverse=true) %}" + _END,
    "reading JSON again and again": _MANY + "{% set b = a|tojson|from_json %}" + _END,
    "titles of many words": "{% for i in range(1000) %}{% set x = ('a ' * 400000)|title %}{% endfor %}",
    "a method with many texts": "{% set t = ('b',) * 100000 %}{% for i in range(100000) %}{{ 'a'.startswith(t) }}{% endfor %}",
    "what stands behind a recursive loop": "{% for x in [1] * 1000 recursive %}"
    + "{{ loop([]) }}" * 900
    + "{% else %}{% set y = ["
    + "[],0," * 1000
    + "] %}{% endfor %}",
    "calls with many arguments": "{% macro f() %}{{ varargs|length }}{% endmacro %}" + _MANY + "{{ f(*a) }}" + _END,
    "a step that costs less than nothing": "{% for i in [-100000000]|map('guard step') %}{% endfor %}"
    "{% for i in range(100000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
}

NUMBERS = {
    "a power of a power": "{{ 10 ** 10 ** 10 }}",
    "a number that squares itself": "{% set ns = namespace(x=3) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "rounding to a billion digits": "{{ 3|round(1000000000) }}",
    "rounding down by a billion digits": "{{ 3|round(-1000000000) }}",
    "rounding up to a billion digits": "{{ 3.5|round(1000000000, 'ceil') }}",
    "a division by nothing": "{{ 1 // 0 }}",
}

TEXTS = {
    "a text times a billion": "{{ 'a' * 1000000000 }}",
    "a billion times a text": "{{ 1000000000 * 'a' }}",
    "a list times a billion": "{{ ([1] * 1000000000)|length }}",
    "a text that doubles itself": _GROWS + "{% set ns.x = ns.x ~ ns.x %}" + _END,
    "a text that adds itself": _GROWS + "{% set ns.x = ns.x + ns.x %}" + _END,
    "a block that doubles itself": _GROWS + "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}" + _END,
    "a list that doubles itself": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "a format of a billion columns": "{{ '%1000000000d' % 1 }}",
    "a format of a billion digits": "{{ '%.1000000000f' % 1 }}",
    "a format with a width from the values": "{{ '%*d' % (1000000000, 1) }}",
    "a format of many wide fields": "{{ ('%999d' * 190000) % 1 }}",
    "a format that repeats a text": "{{ ('%(a)s' * 100000) % {'a': 'x' * 100000} }}",
    "a format of nothing but signs": "{{ ('%' * 900000) % 1 }}",
    "str.format of nothing but signs": "{{ ('{}' * 400000).format(1) }}",
    "a format in a test": "{{ '%1000000000d' is divisibleby(5) }}",
    "a format in another test": "{{ '%1000000000d' is odd }}",
    "str.format of a billion columns": "{{ '{:1000000000}'.format(1) }}",
    "str.format with a width from the values": "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "str.format that repeats a text": "{{ ('{0}' * 100000).format('x' * 100000) }}",
    "center": "{{ 'a'|center(1000000000) }}",
    "the method center": "{{ 'a'.center(1000000000) }}",
    "the method zfill": "{{ 'a'.zfill(1000000000) }}",
    "an indent of a billion": "{{ 'a\nb'|indent(1000000000) }}",
    "an indent of many lines": "{{ ('a\n' * 400000)|indent('x' * 99) }}",
    "replace that explodes": "{{ ('a' * 100000)|replace('a', 'b' * 100000) }}",
    "the method replace, of nothing": "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
    "join with a long separator": "{{ range(100000)|join('x' * 100000) }}",
    "the method join": "{{ ('x' * 100000).join(['a'] * 100000) }}",
    "JSON with a wide indent": "{{ ([[[[1] * 10] * 10] * 10] * 10)|tojson(indent=100000000) }}",
    "escapes of escapes": "{% set ns = namespace(x='&') %}{% for i in range(100000) %}{% set ns.x = (ns.x ~ '&' * 99)|e %}{% endfor %}",
    "output without end": "{% for i in range(100000) %}" + "x" * 1000 + _END,
    "output of macros": "{% macro f() %}"
    + "x" * 50000
    + "{% endmacro %}"
    + _KEEPS
    + "{% set ns.x = [ns.x, f()] %}"
    + _END * 2,
    "parts without end": "{% set a = 'a ' * 400000 %}" + _KEEPS + "{% set ns.x = [ns.x, a.split()] %}" + _END * 2,
    "characters without end": "{% set a = '\u20ac' * 900000 %}" + _KEEPS + "{% set ns.x = [ns.x, a|list] %}" + _END * 2,
    "lists without end": _KEEPS + "{% set ns.x = [ns.x, {}, [], {'a': 1}] %}" + _END * 2,
    "literal lists without end": _KEEPS + "{% set ns.x = [ns.x, [" + "0," * 5000 + "]] %}" + _END * 2,
    "namespaces without end": _KEEPS + "{% set ns.x = namespace(a=ns.x, b={'c': 1}) %}" + _END * 2,
    "macros without end": "{% set ns = namespace(m=none) %}{% macro mk(old) %}{% macro m() %}{{ old }}{% endmacro %}"
    "{% set ns.m = m %}{% endmacro %}{% for i in range(100000) %}{{ mk(ns.m) }}{% endfor %}",
}

NESTED = {
    "lists of themselves, written": _LISTS + "{{ ns.x }}",
    "lists of themselves, as JSON": _LISTS + "{{ ns.x|tojson }}",
    "lists of themselves, joined": _LISTS + "{{ [ns.x]|join }}",
    "lists of themselves, formatted": _LISTS + "{{ '%s' % ns.x }}",
    "lists of themselves, in str.format": _LISTS + "{{ '{}'.format(ns.x) }}",
    "dicts of themselves, as text": _DOUBLES + "{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x ~ '' }}",
    "lists of themselves, compared": _LISTS + "{{ ns.x == ns.y }}",
    "lists of themselves, looked up": _LISTS + "{{ ns.x in [ns.y] }}",
    "lists of themselves, tested": _LISTS + "{{ [ns.x]|select('equalto', ns.y)|list|length }}",
    "lists of themselves, found": _LISTS + "{{ [ns.x].index(ns.y) }}",
    "lists of themselves, sorted": _LISTS + "{{ [ns.x, ns.y]|sort|length }}",
    "lists of themselves, changed": _LISTS + "{% for z in [ns.x, ns.y] %}{{ loop.changed(z) }}{% endfor %}",
    "tuples of themselves, as a key": _TUPLES + "{{ {ns.x: 1} }}",
    "tuples of themselves, in a dict": _TUPLES + "{{ ns.x in {} }}",
    "tuples of themselves, made unique": _TUPLES + "{{ [ns.x]|unique|list|length }}",
    "tuples of themselves, got": _TUPLES + "{{ {}.get(ns.x) }}",
    "tuples of themselves, as an index": _TUPLES + "{{ {}[ns.x] }}",
    "a deep tuple, hashed": "{% set ns = namespace(x=(1,)) %}{% for i in range(90000) %}{% set ns.x = (ns.x,) %}{% endfor %}"
    "{{ [ns.x]|unique|list|length }}",
    "a deep list, written": "{% set ns = namespace(x=[1]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "a namespace of itself": "{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns }}",
    "a list in a namespace, written": _LISTS + "{{ ns }}",
    "a sum of lists": "{{ ([[1] * 1000] * 1000)|sum(start=[])|length }}",
}

SOURCE = {
    "deep parentheses": "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
    "a long chain of not": "{{ " + "not " * 20000 + "1 }}",
    "a long sum": "{{ " + "1+" * 20000 + "1 }}",
    "a long path": "{{ a" + ".b" * 20000 + " }}",
    "loops inside each other": "{% for x in [1] %}" * 500 + _END * 500,
    "many expressions": "{{a}}" * 19000,
    "a long number": "{{ " + "9" * 90000 + " }}",
    "a long text": "x" * 200000,
    "a slice in a tuple": "{{ messages[1:2, 3] }}",
    "an argument twice": "{% macro f() %}{% endmacro %}{{ f(a=1, a=2) }}",
}

ESCAPES = {
    "reading a file": "{% include '/etc/passwd' %}",
    "importing": "{% import 'os' as os %}",
    "importing names": "{% from 'os' import path %}",
    "extending": "{% extends 'base' %}",
    "a block of itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "autoescape": "{% autoescape true %}{{ '<' }}{% endautoescape %}",
    "the class of a text": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "the class by filter": "{{ ''|attr('__class__') }}",
    "the class by item": "{{ ''['__class__']['__mro__'] }}",
    "the class of a message": "{{ messages[0].__class__.__mro__ }}",
    "the globals of a function": "{{ range.__globals__ }}{{ range.call.__globals__['os'] }}",
    "the code of a function": "{{ raise_exception.call.__code__ }}",
    "the handler of a method": "{{ ''.upper.handler.__globals__ }}",
    "the globals of a macro": "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}",
    "the environment of a macro": "{% macro f() %}{% endmacro %}{{ f._environment.meter.charge(-1) }}",
    "the context of the template": "{{ self.__init__.__globals__ }}",
    "the frame of a loop": "{% for x in [1] %}{{ loop._iterator.gi_frame }}{{ loop.__init__.__globals__ }}{% endfor %}",
    "the insides of an undefined name": "{{ x._undefined_name }}",
    "attributes in str.format": "{{ '{0.__class__}'.format(1) }}",
    "items in str.format": "{{ '{0[a]}'.format({'a': 1}) }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "an unlisted method": "{{ 'a'.encode('utf-16') }}",
    "a method without a name of Python": "{{ 'a'.translate({97: 'b' * 1000000}) }}",
    "appending to the messages": "{% set _ = messages.append(1) %}",
    "changing a message": "{% set _ = messages[0].update({'role': 'system'}) %}",
    "emptying a message": "{% set _ = messages[0].pop('role') %}",
    "much filler text": "{{ lipsum(n=100000) }}",
    "a cycler's insides": "{{ cycler(1).__init__.__globals__ }}",
    "a wide time without a sign": "{{ strftime_now('%-1000000000d') }}",
    "a wide time": "{{ strftime_now('%1000000000d') }}",
    "a long time": "{{ strftime_now('%c' * 100000) }}",
}

STOPPED = {**TIME, **NUMBERS, **TEXTS, **NESTED, **SOURCE, **ESCAPES}

HARMLESS = {
    "the class by map": "{{ ['']|map(attribute='__class__')|list|length }}{{ ['']|map(attribute='__class__')|first }}",
    "a number of many digits": "{{ ('f' * 900000)|int(0, 16) + ('9' * 900000)|int + ('9' * 900000)|float }}",
    "the insides of a namespace": "{% set ns = namespace(a=1) %}{{ ns._Namespace__attrs }}",
    "the template's own name": "{{ self is defined }}",
}
