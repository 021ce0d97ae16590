"""Whether decoding several sequences in one call changes what each gets."""

from onward.engines.llama.binding import Context, Logits

_STEPS = 2
"""One token alone can come out equal where kernels do depend on the number of rows."""


def rows_are_exact(context: Context, sequences: int) -> bool:
    """Whether a row's logits are the same to the bit alone, and anywhere in a batch.

    They are for quantized weights; kernels for 16-bit weights sum in an order that depends on
    the number of rows. Then every running request is decoded in a call of its own. Forgets what
    the sequences held.
    """
    alone = [_decoded(context, sequences, rows=1, first=text)[0] for text in range(2)]
    exact = True
    for size in sorted({2, 3, 4, sequences} & set(range(2, sequences + 1))):
        rows = _decoded(context, sequences, rows=size, first=0)
        exact = exact and all((logits == alone[row % 2]).all() for row, logits in enumerate(rows))
    for sequence in range(sequences):
        context.truncate(sequence, 0)
    return exact


def _decoded(context: Context, sequences: int, *, rows: int, first: int) -> list[Logits]:
    """The last logits of `rows` sequences that hold one of two short texts, in turn from `first` on."""
    size = context.model.vocabulary
    for sequence in range(sequences):
        context.truncate(sequence, 0)
    for step in range(_STEPS):
        tokens = [(size // 2 + 977 * ((row + first) % 2) + 131 * step) % size for row in range(rows)]
        context.decode_rows([(row, token, step) for row, token in enumerate(tokens)])
    return [context.logits(row).copy() for row in range(rows)]
