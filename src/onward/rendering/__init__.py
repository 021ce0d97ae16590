"""Between text and token IDs: tokenizer, chat templates, detokenizing, stops. No I/O."""
