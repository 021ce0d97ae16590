"""What all families have from `NativeRenderer`, and how one is chosen."""

import pytest

from onward.core.failure import Failure, FailureKind
from onward.core.request import ChatRequest, ImagePart, Message, TextPart, ToolCall
from onward.rendering.families import registry
from onward.rendering.families.native import NativeRenderer
from tests.unit.rendering.families import oracle
from tests.unit.rendering.tiny import byte_level

HEADER = "<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def qwen3(tokenizer) -> NativeRenderer:
    """Qwen3's format over the default model's tokenizer, to which its marks are text."""
    return oracle.native("qwen3", tokenizer)


def text_of(renderer: NativeRenderer, **fields) -> str:
    request = ChatRequest(model="m", **{"messages": [oracle.user("Hi")], **fields})
    return renderer.tokenizer.decode(renderer.render(request).ids)


def test_what_a_prompt_has_begun_of_the_reply(qwen3: NativeRenderer):
    thought = "<think>\n\n</think>\n\n"
    request = ChatRequest(model="m", messages=[oracle.user("Hi")], reasoning_effort=False)
    prompt = qwen3.render(request)
    assert qwen3.tokenizer.decode(prompt.prefill) == thought
    assert prompt.ids[-len(prompt.prefill) :] == prompt.prefill == qwen3.begun(prompt.ids)
    assert qwen3.render(ChatRequest(model="m", messages=[oracle.user("Hi")])).prefill == []
    plain = ChatRequest(model="m", messages=[oracle.user("Hi")], add_generation_prompt=False)
    assert qwen3.render(plain).prefill == []


def test_a_given_prompt_is_searched_for_the_last_header(qwen3: NativeRenderer):
    encode = qwen3.tokenizer.encode
    for text, begun in [
        (f"{HEADER}a<|im_end|>\n{HEADER}<think>\n", "<think>\n"),
        (HEADER, ""),
        ("<|im_start|>user\nHi<|im_end|>\n", ""),
        ("no header", ""),
        ("", ""),
    ]:
        assert qwen3.tokenizer.decode(qwen3.begun(encode(text, control=True))) == begun
    bare = encode("<think>", control=True)
    assert qwen3.begun(bare, bare=True) == bare


def test_options_of_the_official_template_switch_reasoning(qwen3: NativeRenderer):
    assert text_of(qwen3, template_kwargs={"enable_thinking": False}).endswith("</think>\n\n")
    assert text_of(qwen3, template_kwargs={"enable_thinking": True}).endswith(HEADER)
    assert text_of(qwen3, template_kwargs={"enable_thinking": "no", "other": 1}).endswith(HEADER)
    both = {"template_kwargs": {"enable_thinking": True}, "reasoning_effort": "none"}
    assert text_of(qwen3, **both).endswith("</think>\n\n")


@pytest.mark.covers("TH-3")
@pytest.mark.parametrize("effort", ["", "High", "low", 0.5, 1, 0])
def test_other_efforts_are_refused_with_the_accepted_ones(qwen3: NativeRenderer, effort):
    with pytest.raises(Failure, match="true, false, 'none', 'high'") as failure:
        text_of(qwen3, reasoning_effort=effort)
    assert (failure.value.kind, failure.value.param) == (FailureKind.INVALID_REQUEST, "reasoning_effort")


def test_a_developers_message_reaches_the_prompt(qwen3: NativeRenderer):
    messages = [Message(role="developer", content="Be brief."), oracle.user("Hi")]
    assert text_of(qwen3, messages=messages).startswith("<|im_start|>system\nBe brief.<|im_end|>\n")


@pytest.mark.fault("D23")
@pytest.mark.parametrize("arguments", ["", "{bad", "[1]", "7", '{"a": ' * 3000])
def test_malformed_arguments_of_the_history_stay_in_the_prompt(qwen3: NativeRenderer, arguments: str):
    call = ToolCall("call_1", "f", arguments)
    messages = [oracle.user("Hi"), oracle.assistant(None, call), oracle.tool("1", call)]
    shown = arguments or "{}"
    assert f'{{"name": "f", "arguments": {shown}}}' in text_of(qwen3, messages=messages)


def test_images_are_refused_where_there_are_none(qwen3: NativeRenderer):
    content = [TextPart("a"), ImagePart("data:image/png;base64,")]
    with pytest.raises(Failure) as failure:
        text_of(qwen3, messages=[oracle.user("x"), oracle.user(content)])
    assert failure.value.param == "messages[1].content[1]"


def test_certainly_too_long_a_conversation_is_not_encoded(tokenizer):
    renderer = NativeRenderer(registry.BY_NAME["qwen3"], tokenizer, longest_prompt=100)
    with pytest.raises(Failure) as failure:
        text_of(renderer, messages=[oracle.user("word " * 100_000)])
    assert failure.value.kind is FailureKind.CONTEXT_LENGTH_EXCEEDED


def test_a_family_is_chosen_by_name_repo_or_template(tokenizer, text_side):
    template = text_side.chat_template
    by_name = registry.choose(tokenizer, name="smollm2", repo="Qwen/Qwen3-8B")
    assert (by_name.family, by_name.reason) == (registry.BY_NAME["smollm2"], "named by the config")
    by_repo = registry.choose(tokenizer, repo="huggingfacetb/smollm2-360m-instruct", template="x")
    assert by_repo.family is registry.BY_NAME["smollm2"]
    assert "repo ID" in by_repo.reason
    by_template = registry.choose(tokenizer, repo="nobody/knows", template=template)
    assert by_template.family is registry.BY_NAME["smollm2"]
    assert "template" in by_template.reason
    for options in ({"name": "template", "template": template}, {"template": "{{ messages }}"}, {}):
        chosen = registry.choose(tokenizer, **options)
        assert chosen.family is None
        assert chosen.reason


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("qwen3", "qwen3"),
        ("Qwen3-8B", "qwen3"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("gemma3", "gemma-3"),
        ("gemma4", "gemma-4"),
        ("GLM4.5", "glm-4.5"),
        ("glm5", "glm-4.7"),
        ("gpt_oss", "gpt-oss"),
        ("mistral-tekken", "mistral-small-3.2"),
        ("deepseek-v4", "deepseek-v4"),
        ("llama3.3", "llama3.1"),
        ("minimax-m2", "minimax-m2"),
        ("SmolLM3", "smollm3"),
        ("inkling", "inkling"),
        ("kimi-k2.5", "kimi-k2.5"),
    ],
)
def test_names_as_people_write_them(name: str, family: str):
    assert registry.named(name).name == family


def test_a_family_needs_its_control_tokens():
    tiny = byte_level()
    with pytest.raises(registry.UnknownFamilyError, match="lacks </tool_call>"):
        registry.choose(tiny, name="qwen3")
    chosen = registry.choose(tiny, repo="Qwen/Qwen3-8B")
    assert chosen.family is None
    assert "</tool_call>" in chosen.reason
    with pytest.raises(registry.UnknownFamilyError, match="families are qwen3"):
        registry.choose(tiny, name="nobody")


def test_every_family_has_a_name_of_its_own_and_a_start():
    assert len(registry.BY_NAME) == len(registry.ALL)
    for family in registry.ALL:
        grammar = family.grammar
        assert grammar.start in grammar.states
        targets = {edge.to for state in grammar.states.values() for edge in state.edges.values()}
        assert {target for target in targets if isinstance(target, str)} <= grammar.states.keys()
        assert {state.otherwise for state in grammar.states.values()} <= {None, *grammar.states}
        for repo in family.repos:
            assert "/" in repo
