//! Stages that come back to the producer.
//!
//! A stage is given back when the products that read it have landed (`flight`), which for a product that accumulates
//! in place over a loop is only known in the next iteration: the address of what is to be given back is then
//! carried in a register ([`ReleaseBarrier::Carried`](crate::backend::ptx::lower::state::sync_state::ReleaseBarrier::Carried)).

use crate::backend::ptx::lower::{Lowered, Lowering};

impl Lowering<'_> {
    /// Gives back stages that only regions have used, or that were lent to a store: the boxes of a warp have been read then.
    pub fn release_channels(&mut self, channels: &[u32]) -> Lowered {
        if self
            .schedule
            .warp_spec
            .as_ref()
            .is_some_and(|roles| channels.iter().any(|&channel| roles.is_staging(channel)))
        {
            self.tma_store_wait()?;
            self.b.bar_warp_sync();
        }
        let releases = self.sync.take_releases(channels);
        self.release_stages(&releases, None);
        Ok(())
    }
}
