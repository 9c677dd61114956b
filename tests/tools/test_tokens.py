"""The estimate of tokens, against the counts of two vendors' own tokenizers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import memfiles
from memfiles.errors import InvalidArgument
from tests.cli.command_line import WORKFLOW, run
from tests.support.workflows import write_workflow

# By text, the tokens of OpenAI's o200k_base (js-tiktoken 1.0.21) and of Mistral's Tekken (mistral-common 1.13.1).
COUNTED = {
    "The customer asks for a refund, because the invoice for March was charged twice. We promised to transfer the "
    "amount within five working days. In future she prefers to be contacted by e-mail and not by phone.": (42, 42),
    "# Customers\n- Ada is on Pro since 2026-03-11; renews at EUR 148.50, order #A0031676\n"
    "- Bob is on Free: asks about invoices.\n": (43, 55),
    'def totals(rows: list[Row]) -> dict[str, int]:\n    """The sums by key."""\n    found = defaultdict(int)\n'
    "    for row in rows:\n        found[row.key] += row.count\n    return dict(found)\n": (47, 49),
    '{"type": "object", "properties": {"key": {"type": "string", "description": "The key of the entry."}}, '
    '"required": ["key"], "additionalProperties": false}': (41, 41),
    "客户要求退款，因为三月份的账单被扣了两次。我们承诺在五个工作日内把款项转给她。"
    "以后她希望只通过电子邮件联系，不要打电话。她的合同到年底为止；"
    "之后如果接口已经完成，她考虑升级到更高的套餐。"
    "下次通话时请询问她的营业时间，并确认新的收货地址。": (85, 110),
    "고객은 3월 청구서가 두 번 결제되어 환불을 요청했습니다. "
    "우리는 영업일 기준 닷새 안에 금액을 송금하기로 약속했습니다. "
    "앞으로는 전화가 아니라 전자우편으로만 연락받기를 원합니다. "
    "계약은 연말까지이며, 그때까지 인터페이스가 준비되면 더 높은 요금제로 바꿀 생각입니다.": (87, 82),
}


@pytest.mark.parametrize("text", COUNTED)
def test_the_estimate_is_near_what_vendors_count(text: str) -> None:
    """Within a fifth of their mean."""
    counted = sum(COUNTED[text]) / 2

    assert 0.8 * counted <= memfiles.estimate_tokens(text) <= 1.2 * counted


def test_it_is_a_whole_number_of_any_text() -> None:
    """Nothing is nothing; any one character is at least one token but for white space; more text is not less."""
    signs = ["a", "7", ".", "é", "ß", "ж", "क", "ि", "的", "한", "🎉", "→", "\u200d", "“"]

    assert (0, 1) == (memfiles.estimate_tokens(""), memfiles.estimate_tokens("word"))
    assert [] == [sign for sign in signs if memfiles.estimate_tokens(sign) < 1]
    assert [] == [sign for sign in signs if memfiles.estimate_tokens(sign * 9) <= memfiles.estimate_tokens(sign * 3)]
    for bad in (b"text", None, "half \ud800"):
        with pytest.raises(InvalidArgument):
            memfiles.estimate_tokens(bad)  # type: ignore[arg-type]


def test_a_large_text_takes_little_time() -> None:
    """A second is thirty times what a mebibyte of prose takes."""
    text = "The customer asks for a refund, naïvely: 42 EUR 退款.\n" * 20_000
    begun = time.process_time()
    memfiles.estimate_tokens(text)

    assert time.process_time() - begun < 3


def test_the_command_line_counts_what_memory_adds_to_a_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The card, the entries and the tools, and all together."""
    write_workflow(tmp_path, WORKFLOW.replace("agents:", "  entries: {}\nagents:"))
    monkeypatch.chdir(tmp_path)
    run("entries", "save", "plan", "Ada is on Pro.", "--agent", "desk")
    counted = run("card", "desk", "--tokens", "--json").data["tokens"]
    card = run("card", "desk", "--json").data["card"]

    assert ["card", "entries", "tools", "total"] == list(counted)
    assert (memfiles.estimate_tokens(card), sum(counted.values())) == (counted["card"], 2 * counted["total"])
    assert 20 < counted["entries"] < counted["tools"]
    assert f"total        {counted['total']}" in run("card", "desk", "--tokens").out
