//! PTX as data: instructions, the typed builder that makes them, and their text.
//!
//! Input: calls of the builder. Output: a `Function`, and its PTX text. Order:
//! 1. `inst`: instructions, operands and modifiers;
//! 2. `builder`: one method for each instruction, which checks operand classes and folds constants;
//! 3. `emit`, `spelling`, `loc_directives`: text of a module, of an instruction, of the `.loc`
//!    directives.
//!
//! The folder does not depend on tiles, layouts or schedules.

pub mod builder;
pub mod emit;
#[allow(dead_code, reason = "the tables of PTX are complete; some rows are not generated")]
pub mod inst;
pub mod loc_directives;
mod spelling;
