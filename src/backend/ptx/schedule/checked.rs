//! What a check of a schedule says.

/// What is wrong with a schedule: a sentence.
pub type Checked = Result<(), String>;
