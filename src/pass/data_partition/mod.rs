//! A tile block as bands of rows: groups of warps that run one program, each for its own rows of every tile.
//!
//! Where a product has 192 rows, three groups of four warps can have 64 of them each, and read the same right operands. No layout of
//! bits says that, since twelve warps are no power of two; but rows need not know of each other, so the program for 64 rows
//! is the same for all of them, but for where they begin:
//!
//! ```text
//! %x = load_view_tko %q[%i, %zero]  : tile<192x64xf16>       %band = get_band count = 3
//!                                                            %at = %i * 3 + %band
//!                                                            %x = load_view_tko %q3[%at, %zero]  : tile<64x64xf16>
//! %y = mmaf %x, %k, %z              : tile<192x128xf32>      %y = mmaf %x, %k, %z  : tile<64x128xf32>
//! ```
//!
//! `rows` finds the values that have such rows, beginning with the products; `divide` changes the program. Everything else is the same in
//! all bands: scalars, control flow, and tiles that products have on their right. So nothing of a band is seen by another one:
//! reductions go along rows, and what is stored is stored by its band alone, to elements that no other op accesses. (The consumer
//! warp groups of FlashAttention-3, Shah et al. 2024, divide a tile of queries like that.)

mod analysis;
mod rewrite;

use super::optimize;
use crate::error::Diagnostic;
use crate::ir::{Attr, AttrKind, BlockId, Module, Opcode};
use analysis::Rows;

/// The only entry of a module, for one of so many bands.
///
/// # Errors
/// What of it cannot be divided, at the user's place.
pub fn run(module: &Module, bands: u32) -> Result<Module, Diagnostic> {
    let body = module.entries[0].body;
    let rows = Rows::of(module, body, i64::from(bands)).map_err(|(id, why)| {
        let op = module.op(id);
        Diagnostic::new(format!("`{}` {why}", op.code.spec().name), module.location(op.loc).cloned())
    })?;
    let mut module = module.clone();
    rewrite::divide(&mut module, body, &rows);
    optimize(&mut module);
    Ok(module)
}

/// How many bands a kernel is divided into; 1: it is not.
pub fn count(module: &Module, body: BlockId) -> u32 {
    let mut count = 1;
    module.walk(body, &mut |id| {
        let op = module.op(id);
        if let (Opcode::GetBand, Some(&Attr::NumElem(bands))) = (op.code, op.attr(AttrKind::NumElem)) {
            count = bands as u32;
        }
    });
    count
}
