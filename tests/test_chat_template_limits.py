"""A chat template is a stranger's program: whatever it tries, it ends soon, small, and with an error that says why."""

import json

import hostile_templates
import pytest

from pyspec.chat.template import ChatTemplate, TemplateLimits
from pyspec.errors import ChatTemplateError, InvalidValueError

CPU_S, MEMORY_BYTES = 20, 512 << 20

# One clean process forks for each template, so that a guard that does not hold kills a child and fails its test only.
CHILDREN = """
import json, os, resource, sys, time
sys.path.insert(0, sys.argv[1])
import hostile_templates
from pyspec.chat.template import ChatTemplate
from pyspec.errors import ChatTemplateError

cpu_s, n_bytes = int(sys.argv[2]), int(sys.argv[3])
ChatTemplate("{{ messages }}").render([])
used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")

def child(template):
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (used + n_bytes, used + n_bytes))
    messages = [{"role": "user", "content": "hello"}]
    try:
        return ["text", None, ChatTemplate(template).render(messages)[:200]]
    except ChatTemplateError as error:
        return [error.kind, error.limit, str(error)]
    except BaseException as error:
        return ["died", None, repr(error)[:500]]

answers = {}
for name, template in {**hostile_templates.STOPPED, **hostile_templates.HARMLESS}.items():
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        with open(write, "w") as file:
            json.dump(child(template), file)
        os._exit(0)
    os.close(write)
    with open(read) as file:
        said = file.read()
    _, status = os.waitpid(pid, 0)
    answers[name] = json.loads(said) if status == 0 else ["died", None, f"wait status {status}"]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(isolated_script, request):
    """Name of a template -> [kind, limit, message], each from a process with limits on time and memory."""
    said = isolated_script(CHILDREN, str(request.path.parent), str(CPU_S), str(MEMORY_BYTES), timeout_s=300)
    return json.loads(said)


@pytest.mark.parametrize("name", hostile_templates.STOPPED)
def test_a_hostile_template_ends_with_an_error_in_little_time_and_memory(answers, name: str):
    kind, _, message = answers[name]
    assert kind in ("limit", "failed", "syntax"), message
    assert "chat template" in message
    assert len(message) < 1000


@pytest.mark.parametrize("name", hostile_templates.HARMLESS)
def test_a_harmless_curiosity_tells_nothing(answers, name: str):
    kind, _, message = answers[name]
    assert kind in ("text", "failed"), message
    assert "class" not in message


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("loops in a loop", "n_work"),
        ("a tree of macros", "n_work"),
        ("a macro that calls itself", "n_depth"),
        ("a recursive loop", "n_depth"),
        ("a text times a billion", "n_chars"),
        ("output without end", "n_chars"),
        ("lists of themselves, compared", "n_chars"),
        ("a deep list, written", "n_nested"),
        ("a power of a power", "n_bits"),
        ("a long text", "n_source"),
        ("many expressions", "n_nodes"),
    ],
)
def test_the_error_names_the_limit(answers, name: str, limit: str):
    kind, found, message = answers[name]
    assert (kind, found) == ("limit", limit)
    assert limit in message or limit in ("n_source", "n_nodes")


def test_nothing_that_was_given_is_changed_or_kept():
    messages = [{"role": "user", "content": "hello"}]
    template = ChatTemplate("{% set _ = messages[0].pop('role') %}")
    with pytest.raises(ChatTemplateError, match="pop is not for chat templates"):
        template.render(messages)
    assert messages == [{"role": "user", "content": "hello"}]
    assert ChatTemplate("{{ messages|length }}").render(messages) == "1"


def test_a_stopped_template_can_be_rendered_again():
    template = ChatTemplate("{% for i in range(messages[0].n) %}{% for j in range(9999) %}{% endfor %}x{% endfor %}")
    with pytest.raises(ChatTemplateError) as caught:
        template.render([{"n": 9999}])
    assert (caught.value.kind, caught.value.limit, caught.value.line) == ("limit", "n_work", 1)
    assert template.render([{"n": 3}]) == "xxx"


def test_limits_grow_with_what_is_given():
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{{ m.content|upper }}{% endfor %}")
    content = "word " * 400_000
    assert len(template.render([{"role": "user", "content": content}])) == 2 * len(content)


def test_limits_can_be_set():
    loop = "{% for i in range(20000) %}{{ i }}{% endfor %}"
    assert ChatTemplate(loop).render([]).startswith("0123")
    with pytest.raises(ChatTemplateError, match="limit n_work="):
        ChatTemplate(loop, limits=TemplateLimits(n_work=1000)).render([])
    with pytest.raises(ChatTemplateError, match="limit n_chars="):
        ChatTemplate(loop, limits=TemplateLimits(n_chars=100)).render([])


@pytest.mark.parametrize("name", TemplateLimits.__slots__)
def test_a_limit_below_1_is_refused(name: str):
    with pytest.raises(InvalidValueError, match=name):
        TemplateLimits(**{name: 0})


def test_constants_are_not_computed_while_compiling():
    assert ChatTemplate("{% if false %}{{ 'a' * 1000000000 }}{{ 10 ** 10 ** 9 }}{% endif %}x").render([]) == "x"


def test_only_plain_values_get_in():
    with pytest.raises(InvalidValueError, match=r"messages\[0\].content"):
        ChatTemplate("{{ messages }}").render([{"role": "user", "content": object()}])
    with pytest.raises(InvalidValueError, match="thing"):
        ChatTemplate("{{ thing() }}").render([], thing=print)
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidValueError, match="inside each other"):
        ChatTemplate("{{ thing }}").render([], thing=loop)
