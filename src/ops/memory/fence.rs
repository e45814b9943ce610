//! Fences.

use crate::ir::op_table::Effect;
use crate::ir::{Opcode, Type};
use crate::tile::{caller_location, record};

/// Orders accesses to one memory that is known under two addresses: what this tile block did before the fence has
/// happened, under whichever address, before what it does afterwards.
///
/// Arrays that are lent to a launch are distinct memory where one of them is written. Only what was promised otherwise, or
/// mapped twice, needs this: without it the compiler takes different arrays for different memory.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// // Were both arrays one memory, the second would read what the first one wrote.
/// fn through(x: ArrayMut<f32, 1>, y: ArrayMut<f32, 1>) {
///     x.store(ct::bid(0), ct::ones([4]));
///     ct::alias_fence();
///     y.store(ct::bid(0), y.load(ct::bid(0), [4]) + 1.0);
/// }
///
/// let (mut x, mut y) = (ct::Device::cpu().zeros([8])?, ct::Device::cpu().zeros([8])?);
/// ct::launch(through, 2, (&mut x, &mut y))?;
/// assert_eq!((x.to_vec()?, y.to_vec()?), (vec![1.0; 8], vec![1.0; 8]));
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn alias_fence() {
    let place = caller_location();
    record(|t| {
        t.at(place);
        if t.admits(place, Effect::Other, 0) {
            let token = t.builder.module.intern(Type::Token);
            let start = t.emit(Opcode::MakeToken, &[], vec![], vec![], &[token])[0];
            t.emit(Opcode::MemoryFenceAlias, &[&[start]], vec![], vec![], &[token]);
        }
    });
}
