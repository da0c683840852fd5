"""`pyspec verify` says whether drafts change the tokens, and its exit code says it, too."""

import json

from pyspec.decoder import Decoder
from pyspec.verify import Verdict

ARGUMENTS = ("verify", "tiny-target", "-n", 24, "-c", 512, "-t", 1, "--spec", "draft:tiny-draft")


def test_equal_tokens_exit_with_0(cli):
    result = cli(*ARGUMENTS)
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("1 of 1 equal\n")


def test_different_tokens_exit_with_1_and_a_margin(cli, monkeypatch):
    verify = Decoder._verify

    def wrong(self, request, draft):
        verdict = verify(self, request, draft)
        if not draft:
            return verdict
        token = (verdict.tokens[-1] + 1) % self.n_vocab
        return Verdict([*verdict.tokens[:-1], token], verdict.n_accepted, verdict.n_cut, verdict.finish)

    monkeypatch.setattr(Decoder, "_verify", wrong)
    # what was shown to the text stream stays as it was, so the tokens alone differ
    result = cli(*ARGUMENTS, "--budget", "off", "--json")
    (found,) = json.loads(result.out)
    assert result.code == 1
    assert found["equal"] is False
    assert found["margin"] > 0


def test_prompts_come_from_files(cli, tmp_path):
    for name, text in (("a.txt", "def f("), ("b.txt", "import os\n")):
        (tmp_path / name).write_text(text)
    result = cli(*ARGUMENTS, "-f", tmp_path / "a.txt", "-f", tmp_path / "b.txt", "--json")
    assert result.code == 0
    assert [found["index"] for found in json.loads(result.out)] == [0, 1]


def test_an_empty_file_is_misuse(cli, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    result = cli(*ARGUMENTS, "-f", tmp_path / "empty.txt")
    assert (result.code, result.out) == (2, "")


def test_to_compare_nothing_is_no_success(cli):
    result = cli("verify", "tiny-target", "-n", 8, "-c", 256, "-t", 1, "--spec", "none")
    assert result.code == 1
    assert "no draft was decoded" in result.err
