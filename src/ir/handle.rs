//! Typed handles of values, ops, blocks and source locations: positions in the arenas of a module.

macro_rules! handle {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// Returns the position in its arena, as an index of side tables.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

handle! {
    /// Handle of an SSA value.
    Value
}
handle! {
    /// Handle of an operation.
    OpId
}
handle! {
    /// Handle of a block. Each region is one block.
    BlockId
}
handle! {
    /// Handle of an interned source location. 0 is unknown.
    Loc
}

impl Loc {
    /// No location.
    pub const UNKNOWN: Loc = Loc(0);
}
