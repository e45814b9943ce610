//! Stages that come back to the producer.
//!
//! A stage is given back when the products that read it have landed (`flight`), which for a product that accumulates
//! in place over a loop is only known in the next iteration: the address of what is to be given back is then
//! carried in a register ([`Release::Carried`]).

use super::async_state::{EMPTY, Release};
use super::{Lowered, Lowering};
use crate::backend::ptx::builder::Builder;
use crate::backend::ptx::inst::{Addr, Cmp, Reg, Ty};
use crate::ir::Value;

impl Lowering<'_> {
    /// Gives back stages that only regions have used, or that were lent to a store: the boxes of a warp have been read then.
    pub fn give(&mut self, channels: &[u32]) -> Lowered {
        if self
            .schedule
            .warp_spec
            .as_ref()
            .is_some_and(|roles| channels.iter().any(|&channel| roles.is_staging(channel)))
        {
            self.drain()?;
            self.b.bar_warp_sync();
        }
        let releases = self.releases_of(channels);
        self.give_back(&releases, None);
        Ok(())
    }

    /// Tells the producer that these stages may be filled again: not before a value is computed, if one is given.
    pub fn give_back(&mut self, releases: &[Release], behind: Option<Value>) {
        let computed = behind.and_then(|value| self.has_computed(value));
        let Some(rings) = &self.rings else { return };
        let (Some(leader), peer) = (rings.leader, rings.peer.zip(rings.far_leader)) else { return };
        let mut now = |teller: Reg| computed.map_or(teller, |computed| self.b.and(Ty::Pred, teller, computed).reg());
        let (leader, peer) = (now(leader), peer.map(|(peer, far_leader)| (peer, now(far_leader))));
        for &release in releases {
            let (barrier, paired, there) = match release {
                Release::Stage(barrier, paired) => (barrier, paired, None),
                Release::Carried(barrier, paired) => (barrier, paired, Some(self.b.setp(Cmp::Ne, Ty::U32, barrier, 0))),
            };
            let arrive = |b: &mut Builder, leader: Reg, bar: Reg, remote: bool| {
                let arrives = there.map_or(leader, |there| b.and(Ty::Pred, there, leader).reg());
                b.guarded(arrives, false, |b| b.mbarrier_arrive(&Addr::new(bar, EMPTY), remote));
            };
            arrive(&mut self.b, leader, barrier, false);
            if let Some((peer, far_leader)) = peer.filter(|_| paired) {
                let far = self.b.mapa(barrier, peer).reg();
                arrive(&mut self.b, far_leader, far, true);
            }
        }
    }
}
