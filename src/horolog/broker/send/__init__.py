"""Send: take messages in, each once: what repeats an earlier one, or comes back from a consumer, is known here."""
