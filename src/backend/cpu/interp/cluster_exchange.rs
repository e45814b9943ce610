//! Exchange of tiles among the tile blocks of a cluster.
//!
//! Each tile block of a cluster has its own thread. The op `cluster_all_gather` stores the tile of
//! its block, and waits for the tiles of the other ranks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::value::{Word, Words, each_width};

/// Tiles in transit between the tile blocks of a launch.
#[derive(Debug, Default)]
pub(crate) struct ClusterExchange {
    deposits: Mutex<FxHashMap<Gather, Deposits>>,
}

/// One execution of `cluster_all_gather` by a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Gather {
    /// Position of the cluster in the grid.
    pub cluster: [u32; 3],
    /// Number of earlier executions by a tile block.
    pub sequence: u64,
}

/// Tiles of one execution, by rank.
#[derive(Debug, Default)]
struct Deposits {
    tiles: Vec<Option<Words>>,
    /// Number of tile blocks that have read all tiles.
    readers: usize,
}

impl ClusterExchange {
    fn deposits(&self) -> MutexGuard<'_, FxHashMap<Gather, Deposits>> {
        self.deposits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deposits the tile of a tile block.
    pub(super) fn deposit(&self, gather: Gather, rank: usize, size: usize, tile: Words) {
        let mut deposits = self.deposits();
        let tiles = &mut deposits.entry(gather).or_default().tiles;
        tiles.resize(size, None);
        tiles[rank] = Some(tile);
    }

    /// Returns all tiles in the order of the ranks, or `None` if one is missing. The last reader
    /// removes them.
    pub(super) fn read(&self, gather: Gather) -> Option<Words> {
        let mut deposits = self.deposits();
        let found = deposits.get_mut(&gather)?;
        let tiles = found.tiles.iter().map(Option::as_ref).collect::<Option<Vec<&Words>>>()?;
        let all = each_width!(tiles[0], first => {
            let mut all = first.clone();
            tiles[1..].iter().for_each(|&tile| all.extend_from_slice(Word::of(tile)));
            Word::list(all)
        });
        found.readers += 1;
        if found.readers == found.tiles.len() {
            deposits.remove(&gather);
        }
        Some(all)
    }
}
