//! Losses of language models.
