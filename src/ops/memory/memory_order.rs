//! Orders of memory accesses, and their scopes.

use crate::ir::{Attr, MemOrder, MemScope};

/// Scope of a memory order: the threads that the order includes.
///
/// ```
/// # use cutlet::doctest::*;
/// fn count(y: ArrayMut<i32, 1>) {
///     // The host and other devices may count along.
///     let _before = y.entry(0).atomic_add_with(1, ct::AtomicOptions::new().relaxed(ct::Scope::System));
/// }
///
/// let mut y = ct::Device::cpu().zeros([1])?;
/// ct::launch(count, 8, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [8]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// The tile block itself.
    Block,
    /// All tile blocks of this device.
    Device,
    /// All devices and the host.
    System,
}

impl Scope {
    pub(crate) fn in_ir(self) -> MemScope {
        match self {
            Scope::Block => MemScope::TileBlock,
            Scope::Device => MemScope::Device,
            Scope::System => MemScope::System,
        }
    }
}

/// The order of an access; `None` is weak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Order(pub Option<(MemOrder, Scope)>);

impl Order {
    /// Returns this order for this scope.
    pub fn new(order: MemOrder, scope: Scope) -> Order {
        Order(Some((order, scope)))
    }

    /// Returns the attributes of this order.
    pub fn attrs(self) -> Vec<Attr> {
        match self.0 {
            None => vec![Attr::MemOrder(MemOrder::Weak)],
            Some((order, scope)) => vec![Attr::MemOrder(order), Attr::MemScope(scope.in_ir())],
        }
    }
}
