//! Fence for memory with two addresses.

use crate::ir::op_table::Effect;
use crate::ir::{Opcode, Type};
use crate::tile::{caller_location, record};

/// Orders accesses to one memory that has two addresses: accesses of this tile block before the
/// fence happen before those after it, under either address.
///
/// An array of a launch that is written is distinct from all other arrays of it. The fence is for
/// memory that is mapped twice, or passed twice by `unsafe`. Without the fence, the compiler
/// assumes that different arrays are different memory.
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
