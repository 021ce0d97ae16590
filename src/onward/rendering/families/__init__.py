r"""Model families: how each writes a conversation, and how its replies are read.

A family is one module here that exports ``FAMILIES``, a tuple of `family.Family`, and a line in
`registry.ALL` (the first whose repo ID or template fits is taken: put the special before the
general). `qwen3` is the example to follow, `smollm` the one without tokens for its marks.

What a module holds
-------------------

- ``render(conversation, prompt)`` writes the prompt. ``prompt.frame(...)`` is for what the format
  itself writes: spellings of control tokens in it become these tokens. ``prompt.text(...)`` is for
  everything a caller wrote (content, names, arguments, tool declarations): it never does. Text
  between two control tokens is encoded as one run, so it does not matter how it is cut into calls.
  Call ``prompt.reply()`` behind the header of every assistant message, in the history too: what the
  prompt has of the last reply behind it (``<think>``, an empty thought, a continued message) goes
  through the reply's grammar before the first token, so the grammar needs no special start states.
  ``conversation.effort`` is what ``efforts`` makes of `reasoning_effort`; ``turn.reasoning`` None
  means the caller sent none; ``call.json`` is arguments as an object is written by ``tojson``,
  ``call.arguments`` as they were sent, ``call.value`` None for malformed ones (agents send them).
  BOS is written by the module, as ``prompt.frame("<s>")``.
- ``grammar``: states and edges, see `parsing.grammar`; the codec, see `codecs`. Rules that families
  share stand in modules of their own (`chatml`).
- ``stops``, ``header``, ``marks``, ``template``, ``repos``, ``kind``, ``efforts``, ``tools``: see `Family`.

Tests
-----

``tests/unit/rendering/families/test_NAME.py``, over ``oracle.py`` and ``laws.py`` beside it: every
one of ``oracle.CONVERSATIONS``, for every effort, equals the official template with the official
tokenizer (or the family's other authority); conversations of the family's own, at least for what
the shared ones do not touch; control tokens in a caller's text; ``check_family`` (render then parse
is the identity, any cut is the same, random IDs lose nothing); a table of well-formed replies and one
of malformed ones; efforts; repo IDs; recognised templates. A difference from the authority is listed
with its reason in the test.

How the grammar holds the hard ones
-----------------------------------

- *Marks without tokens* (MiniMax without its tokenizer, SmolLM3's calls, DSML): a mark that the
  tokenizer has no token for is found in the text. DSML's ``<｜DSML｜tool_calls>`` is such a mark; the
  control token ``｜DSML｜`` inside it is named in ``Grammar.plain``, so that it counts as text.
- *DeepSeek V3.1, Kimi*: a SPACE state for the section with ``otherwise=None`` (text there is an
  error), a CALL state inside that ``keeps`` the separator; the codec gets ``[text, Mark, text]``.
  Kimi's ``functions.f:0`` is given back as ``Call.id``.
- *GLM, Qwen3.5, MiniMax, Qwen3-Coder*: one CALL state that keeps ``<arg_key>`` and its like; the
  codec types values with ``Tools.value(name, parameter, text)``. A codec may give several calls.
- *Stops that are the next role* (GLM's ``<|observation|>``, Gemma's ``<|tool_response>``): ``stops``.
  An end token that is also an edge of the state (harmony's ``<|call|>``) goes over that edge. The
  edge for `END` is taken at any end: a call that only the end closes (Mistral, bare JSON) has
  ``END: Edge(to=..., close=True)``, and is then complete when cut, too, if its codec can read it.
- *Mistral*: CALL keeps ``[ARGS]`` and ``[CALL_ID]``; its edge for ``[TOOL_CALLS]`` closes it and leads
  back into it; ``END`` closes it. The codec reads the list of v3 as well. Its reasoning ``keeps`` the
  marks of calls: they are text there. (Harmony's calls have a mark at their end, so its ``END`` edge
  is ``whole``: a call that is cut off there is text.)
- *Bare JSON* (Llama 3): a SPACE start state with ``openings={'{"name"': "call"}`` (white space aside);
  its edge for `END` is ``close=True, lenient=True``: what is no call is content.
- *Harmony*: the start state is a LABEL that keeps ``<|channel|>`` and ``<|constrain|>``; its edge for
  ``<|message|>`` has a `Route`, a function from the label's pieces to ``"reasoning"``, ``"content"`` or
  ``"call"``, raising `CodecError` for a header that does not exist. The codec finds the label in
  ``Body.label``. ``<|end|>`` leads to a SPACE state, ``<|start|>`` from there to the LABEL state again.
- *Inkling*: the start state is SPACE with an edge for ``<|message_model|>`` to a LABEL (the function's
  name, or nothing), from which ``<|content_text|>`` and its like lead on by a `Route`;
  ``<|end_message|>`` leads back. ``header=""``: there is no prefill.
- *Gemma 4*: ``<|channel>`` leads to a LABEL whose edge is the text mark ``"\n"``; its route wants
  ``thought``. CALL keeps ``<|"|>``; the codec reads Gemma's own values.
- *Several parts of a kind* (TH-10) are joined in order by the caller of the machine.
"""
