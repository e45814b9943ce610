//! Load paths: the transfer of each loaded tile to the ops that read it.

/// The path of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadPath {
    /// The threads load the tile into registers.
    #[default]
    Direct,
    /// Multistage `cp.async` copies. `thread_private`: each thread loads the elements that it has
    /// copied into registers. Otherwise MMAs read the tile in its stage.
    CpAsync { thread_private: bool },
    /// The producer loads the tile, and MMAs read it in the stage of this channel.
    TmaOperand { channel: u32 },
    /// The producer loads the tile, and the threads load it into registers from the stage of this
    /// channel.
    TmaAux { channel: u32 },
}

impl LoadPath {
    /// Returns true if MMAs read the tile in its stage.
    pub fn is_smem_operand(self) -> bool {
        matches!(self, LoadPath::TmaOperand { .. } | LoadPath::CpAsync { thread_private: false })
    }
}
