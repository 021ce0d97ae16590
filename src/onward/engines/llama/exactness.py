"""Whether decoding several sequences in one call changes what each gets."""

from onward.engines.llama.binding import Context


def rows_are_exact(context: Context, sequences: int) -> bool:
    """Whether a row's logits are the same to the bit alone, and anywhere in a batch.

    They are for quantized weights; kernels for 16-bit weights sum in an order that depends on
    the number of rows. Then every running request is decoded in a call of its own. Forgets what
    the sequences held.
    """
    token = context.model.vocabulary // 2
    context.decode_rows([(0, token, 0)])
    alone = context.logits(0).copy()
    exact = True
    for size in sorted({2, 3, 4, sequences} & set(range(2, sequences + 1))):
        for sequence in range(sequences):
            context.truncate(sequence, 0)
        context.decode_rows([(sequence, token, 0) for sequence in range(size)])
        exact = exact and all((context.logits(row) == alone).all() for row in range(size))
    for sequence in range(sequences):
        context.truncate(sequence, 0)
    return exact
