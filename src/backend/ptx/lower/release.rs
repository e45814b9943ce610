//! Stages that come back to the producer.
//!
//! A stage is given back when the products that read it have landed (`flight`), which for a product that accumulates
//! in place over a loop is only known in the next iteration: the address of what is to be given back is then
//! carried in a register ([`Release::Carried`]).

use super::ring::{EMPTY, Rings};
use super::{Lowered, Lowering};
use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::inst::{Addr, Cmp, Reg, Ty};
use crate::ir::Value;

/// A stage to be given back once a product has landed. The flag: to both tile blocks of a pair.
#[derive(Clone, Copy, Debug)]
pub enum Release {
    /// The one with this full barrier.
    Stage(Reg, bool),
    /// The one whose full barrier the register names, if it is not 0.
    Carried(Reg, bool),
}

impl Lowering<'_> {
    /// The stages that are held of these channels, to be given back.
    pub fn releases_of(&mut self, channels: &[u32]) -> Vec<Release> {
        let Some(rings) = self.rings.as_mut() else { return Vec::new() };
        let Rings { roles, held, .. } = rings;
        let release = |&channel: &u32| {
            let held = held[channel as usize].take()?;
            let paired = roles.pipelines[roles.channels[channel as usize].pipeline].clustered;
            Some(Release::Stage(held.barrier, paired))
        };
        channels.iter().filter_map(release).collect()
    }

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

    /// Has the ring of a channel stages that a pair of tile blocks fills together?
    pub fn is_paired(&self, channel: u32) -> bool {
        let roles = self.rings.as_ref().map(|rings| &rings.roles);
        roles.is_some_and(|roles| roles.pipelines[roles.channels[channel as usize].pipeline].clustered)
    }
}
